"""`client.watch`: a request loop against a responder."""

import asyncio
from contextlib import aclosing
from random import Random

from tidegate.client import Client, Message
from tidegate.flow.timeout import FixedTimeout
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
