"""`client.watch`: a request loop against a responder."""

import asyncio
from contextlib import aclosing
from random import Random

from tests.integration.client.servers import cable
from tidegate.client import Client, Message
from tidegate.flow.timeout import FixedTimeout
from tidegate.flow.timeout.levels import FixedLoop
from tidegate.testing import BrokerThread


def test_a_watched_request_is_repeated_and_nudged() -> None:
    async def body(port: int) -> None:
        url = f"mqtt://127.0.0.1:{port}"
        async with asyncio.timeout(30), Client(url) as server, Client(url) as client:
            served = 0

            async def answer(message: Message) -> None:
                nonlocal served
                served += 1
                await server.respond(
                    message, str(served), user_properties=(("tide-load", "proc=0.01;cap=100;watch=1"),)
                )

            await server.subscribe("ask", qos=1, callback=answer)
            watching = client.watch("ask", policy=FixedTimeout(0.02), random=Random(1))
            async with aclosing(watching) as responses:  # type: ignore[type-var]
                seen = [(await anext(responses)).text for _ in range(4)]
            assert seen == ["1", "2", "3", "4"]
            slow = client.watch("ask", policy="off", nudge="news/#")
            async with aclosing(slow) as responses:  # type: ignore[type-var]
                waiting = asyncio.create_task(anext(responses))
                while "news/#" not in client.subscriptions:
                    await asyncio.sleep(0.01)
                await server.publish("news/1", b"", qos=1)
                assert int((await waiting).text) > 4

    with BrokerThread() as broker:
        asyncio.run(body(broker.port))


async def answer_all(server: Client) -> None:
    async def answer(message: Message) -> None:
        await server.respond(message, message.payload)

    await server.subscribe("ask", qos=1, callback=answer)


def test_loops_with_the_same_nudge_all_hear_it() -> None:
    async def body(port: int) -> None:
        url = f"mqtt://127.0.0.1:{port}"
        async with asyncio.timeout(30), Client(url) as server, Client(url) as client:
            await answer_all(server)
            first, second = (client.watch("ask", name, policy="off", nudge="news/#") for name in "ab")
            async with aclosing(first) as one:  # type: ignore[type-var]
                async with aclosing(second) as two:  # type: ignore[type-var]
                    waiting = [asyncio.create_task(anext(each)) for each in (one, two)]
                    while not all(task.done() for task in waiting):
                        await server.publish("news/1", b"", qos=1)
                        await asyncio.sleep(0.01)
                    assert [task.result().text for task in waiting] == ["a", "b"]
                waiting = [asyncio.create_task(anext(one))]
                while not waiting[0].done():
                    await server.publish("news/1", b"", qos=1)
                    await asyncio.sleep(0.01)
            assert "news/#" not in client.subscriptions

    with BrokerThread() as broker:
        asyncio.run(body(broker.port))


def test_a_loop_goes_on_after_a_lost_connection() -> None:
    async def body(port: int) -> None:
        async with asyncio.timeout(30), cable(port) as link, Client(f"mqtt://127.0.0.1:{port}") as server:
            await answer_all(server)
            url = f"mqtt://127.0.0.1:{link.port}"
            client = Client(url, reconnect=True, reconnect_min_delay=0.01, reconnect_max_delay=0.1)
            async with client:
                watching = client.watch("ask", policy=FixedTimeout(0.02), timeout=0.5)
                async with aclosing(watching) as responses:  # type: ignore[type-var]
                    for _ in range(5):
                        await anext(responses)
                        link.cut()
                    await anext(responses)

    with BrokerThread() as broker:
        asyncio.run(body(broker.port))


def test_a_slow_taker_is_no_slow_response() -> None:
    async def body(port: int) -> None:
        url = f"mqtt://127.0.0.1:{port}"
        async with asyncio.timeout(30), Client(url) as server, Client(url) as client:
            await answer_all(server)
            policy = Kept(0.01)
            watching = client.watch("ask", policy=policy)
            async with aclosing(watching) as responses:  # type: ignore[type-var]
                for _ in range(4):
                    await anext(responses)
                    await asyncio.sleep(1.0)
            assert 0.0 < policy.made.t_avg < 0.25

    with BrokerThread() as broker:
        asyncio.run(body(broker.port))


class Kept(FixedTimeout):
    """Keeps the loop it made, which knows how long responses take."""

    def loop(self) -> FixedLoop:
        self.made = super().loop()
        return self.made
