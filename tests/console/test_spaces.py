"""What the console makes of a space's answers: those of another life, and those that do not come."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidegate.client import Client, Message
from tidegate.console.errors import RoomMissing
from tidegate.console.shared import FRESH
from tidegate.console.spaces import ASK, COUNT, RECOUNT, SILENCE, Spaces
from tidegate.testing import BrokerThread

QUERIES = "tide/space/{}/query"


class Space:
    """Answers what the console asks, as a space of this version and size would."""

    def __init__(self, version: int, triples: int) -> None:
        self.version, self.triples = version, triples
        self.asked: list[str] = []

    async def serve(self, client: Client) -> None:
        async for message in client.messages:
            self.asked.append(message.payload.decode())
            await client.respond(
                message, self._answer(message), user_properties=(("version", str(self.version)),)
            )

    def _answer(self, message: Message) -> str:
        if message.payload.decode() == ASK:
            return json.dumps({"boolean": True})
        return json.dumps({"results": {"bindings": [{"n": {"value": str(self.triples)}}]}})


def dial(broker: BrokerThread) -> Client:
    return Client(f"127.0.0.1:{broker.port}")


@asynccontextmanager
async def serving(broker: BrokerThread, space: Space) -> AsyncIterator[None]:
    async with dial(broker) as client:
        await client.subscribe(QUERIES.format("home"), qos=1)
        task = asyncio.create_task(space.serve(client))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_the_triples_of_another_life_are_counted_though_its_version_is_the_same(
    tidegate_broker: BrokerThread,
) -> None:
    """A space that keeps nothing counts its versions from the start in each of its lives."""

    async def run() -> None:
        clock = Clock()
        spaces = Spaces(clock)
        async with dial(tidegate_broker) as client:

            async def triples(after: float) -> object:
                clock.now += after
                return (await spaces.look(client, "home"))["triples"]

            async with serving(tidegate_broker, space := Space(version=1, triples=7)):
                assert await triples(0.0) == 7
                assert await triples(FRESH) == 7
                assert space.asked == [ASK, COUNT, ASK]
                space.triples = 3  # started again between two looks: nobody can see it at once
                for _ in range(round(RECOUNT / FRESH)):
                    found = await triples(FRESH)
                assert found == 3
                assert space.asked.count(COUNT) == 2
            with pytest.raises(RoomMissing):
                await triples(FRESH)
            async with serving(tidegate_broker, Space(version=1, triples=4)):
                assert await triples(FRESH) == 4
            async with serving(tidegate_broker, Space(version=1, triples=5)):  # nobody looked for a while
                assert await triples(SILENCE + FRESH) == 5

    asyncio.run(run())


def test_all_who_wait_for_a_space_that_hangs_get_one_answer(tidegate_broker: BrokerThread) -> None:
    async def run() -> list[str]:
        spaces = Spaces()
        async with dial(tidegate_broker) as hung, dial(tidegate_broker) as client:
            await hung.subscribe(QUERIES.format("home"), qos=1)
            looks = (spaces.look(client, "home") for _ in range(4))
            found = await asyncio.gather(*looks, return_exceptions=True)
            assert [each.payload.decode() for each in await hung.messages.get_many()] == [ASK]
            return [type(each).__name__ for each in found]

    assert asyncio.run(run()) == ["RoomMissing"] * 4
