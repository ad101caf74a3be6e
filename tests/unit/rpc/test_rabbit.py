"""Acknowledgements for RabbitMQ go on, however a connection ended."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("aio_pika")

from tidegate.rpc.errors import Unavailable
from tidegate.rpc.rabbit_queue import RabbitConsumer, _reach


class Taken:
    """A message whose channel may be gone."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.fault = fault
        self.is_acked = False

    async def ack(self) -> None:
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        self.is_acked = True


FAULTS = [Exception("closed"), asyncio.CancelledError(), RuntimeError("closed"), OSError("reset")]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_follows_a_lost_acknowledgement_is_acknowledged(fault: BaseException) -> None:
    async def scenario() -> None:
        channel: Any = None
        consumer = RabbitConsumer(channel, ["tasks"])
        messages: list[Any] = [Taken(fault), Taken(), Taken()]
        for message in messages[:2]:
            consumer._ack(message)
        while (acking := consumer._acking) is not None:
            await asyncio.wait([acking])
            assert consumer._acking is not acking
        consumer._ack(messages[2])
        assert consumer._acking is not None
        await consumer._acking
        assert [message.is_acked for message in messages] == [False, True, True]

    asyncio.run(scenario())


def test_a_fault_without_a_class_is_one_of_the_connection() -> None:
    async def scenario() -> None:
        for fault in (Exception("closed"), asyncio.CancelledError()):
            with pytest.raises(Unavailable):
                await _reach(Taken(fault).ack())
        with pytest.raises(UnicodeError):
            await _reach(Taken(UnicodeError()).ack())

    asyncio.run(scenario())
