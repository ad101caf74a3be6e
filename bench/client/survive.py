"""QoS 1 through a broker that is killed again and again: `python -m bench.client.survive`.

A publisher and a subscriber, both our client with `reconnect`, exchange numbered messages over a broker with a data
folder. Each time its share of the messages has arrived, the broker is killed (SIGKILL) and started again. What was
acknowledged to the publisher must reach the subscriber: none lost, repetitions allowed, first arrivals in order. The
result is JSON on standard output; the exit status says whether nothing was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

from bench.soak.broker import BrokerProcess
from tidegate.client import NEVER, Client

TOPIC = "survive/t"
IN_FLIGHT = 200  # publishes that wait for their acknowledgement at a time
PROGRESS_SECONDS = 60.0  # without a single new message, that is: not a limit on the whole
OPTIONS: dict[str, Any] = {
    "clean_start": False,
    "session_expiry_interval": NEVER,
    "reconnect": True,
    "reconnect_min_delay": 0.05,
    "reconnect_max_delay": 0.5,
    "operation_timeout": None,
}


@dataclass(kw_only=True, slots=True)
class Outcome:
    """`out_of_order`: first arrivals behind a later one. `repeated` is no fault, at QoS 1."""

    messages: int
    kills: int
    lost: int
    repeated: int
    out_of_order: int
    publisher_connections: int
    subscriber_connections: int
    seconds: float


class Arrivals:
    """What the subscriber got, and a word to those who wait for more."""

    def __init__(self, number: int) -> None:
        self.times = bytearray(number)
        self.distinct = 0
        self.repeated = 0
        self.out_of_order = 0
        self._highest = -1
        self._changed = asyncio.Event()

    def note(self, number: int) -> None:
        if self.times[number]:
            self.repeated += 1
            return
        self.times[number] = 1
        self.distinct += 1
        self.out_of_order += number < self._highest
        self._highest = max(self._highest, number)
        self._changed.set()

    async def wait(self, number: int) -> None:
        """Wait until so many different messages came."""
        while self.distinct < number:
            self._changed.clear()
            async with asyncio.timeout(PROGRESS_SECONDS):
                await self._changed.wait()


async def _collect(client: Client, arrivals: Arrivals) -> None:
    async for message in client.messages:
        arrivals.note(int(message.payload))
        message.ack()


async def _connected(client: Client, times: int) -> None:
    """Wait until the client has connected so many times."""
    async with asyncio.timeout(PROGRESS_SECONDS):
        while client.statistics()["connections"] < times:
            await asyncio.sleep(0.01)


async def survive(messages: int, kills: int, data: str, say: Callable[[str], None]) -> Outcome:
    began = time.monotonic()
    arrivals = Arrivals(messages)
    with BrokerProcess(f"data={data}") as broker:
        address = f"127.0.0.1:{broker.port}"
        async with (
            Client(address, client_id="subscriber", manual_ack=True, **OPTIONS) as subscriber,
            Client(address, client_id="publisher", max_in_flight=IN_FLIGHT, **OPTIONS) as publisher,
        ):
            await subscriber.subscribe(TOPIC, qos=1)
            collecting = asyncio.create_task(_collect(subscriber, arrivals))
            async with asyncio.TaskGroup() as group:
                # One task: order is then that of the numbers. `publish_nowait` keeps many in flight.
                group.create_task(_stream(publisher, messages))
                for kill in range(1, kills + 1):
                    await arrivals.wait(messages * kill // (kills + 1))
                    broker.kill()
                    await asyncio.to_thread(broker.start)
                    for client in (publisher, subscriber):  # so that every kill cuts both of them off
                        await _connected(client, kill + 1)
                    say(f"kill {kill} of {kills}: {arrivals.distinct} of {messages} messages have arrived")
            try:
                await arrivals.wait(messages)
            except TimeoutError:
                say(f"no more messages within {PROGRESS_SECONDS:g} s")
            collecting.cancel()
            await asyncio.wait([collecting])
            connections = [client.statistics()["connections"] for client in (publisher, subscriber)]
    return Outcome(
        messages=messages,
        kills=kills,
        lost=messages - arrivals.distinct,
        repeated=arrivals.repeated,
        out_of_order=arrivals.out_of_order,
        publisher_connections=int(connections[0]),
        subscriber_connections=int(connections[1]),
        seconds=round(time.monotonic() - began, 1),
    )


async def _stream(client: Client, messages: int) -> None:
    """Publish 0, 1, 2 … in order, `IN_FLIGHT` at a time; every one is acknowledged when this returns."""
    room = asyncio.Semaphore(IN_FLIGHT)
    faults: list[BaseException] = []

    def on_done(future: asyncio.Future[Any]) -> None:
        room.release()
        if (fault := future.exception()) is not None:
            faults.append(fault)

    for number in range(messages):
        await room.acquire()
        client.publish_nowait(TOPIC, str(number), qos=1).add_done_callback(on_done)
    for _ in range(IN_FLIGHT):
        await room.acquire()
    if faults:
        raise faults[0]


def run(messages: int, kills: int, say: Callable[[str], None] = lambda _: None) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tidesurvive-") as data:
        return uvloop.run(survive(messages, kills, data, say))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    outcome = run(given.messages, given.kills, lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(asdict(outcome), indent=1))
    return 1 if outcome.lost or outcome.out_of_order else 0


if __name__ == "__main__":
    raise SystemExit(main())
