"""The demo's sensors and crew, one process: `python -m tidegate.demo.plant URL SENSORS`.

Each sensor sends once a second at QoS 1, and one reader notes how long each message took. A crew of three shares jobs;
`slow` on the input makes the third ten times slower, `brisk` as fast as before. Every second one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from random import Random
from typing import Any, Final

from tidegate.client import Client

CREW: Final = ("worker-1", "worker-2", "worker-3")
JOBS: Final = 40.0  # a second: fewer than the 50 that nobody is held below
WORK: Final = 0.02  # seconds a job takes
SLOW_WORK: Final = 0.2
TICK: Final = 1.0


class Plant:
    """What its clients share."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.random = Random(seed)
        self.work = dict.fromkeys(CREW, WORK)
        self.delays: list[float] = []
        self.done = dict.fromkeys(CREW, 0)

    async def sensor(self, number: int) -> None:
        async with self._client(f"sensor-{number:03d}") as client:
            await asyncio.sleep(self.random.random())
            while True:
                sent = time.perf_counter()
                await client.publish(f"plant/level/{number:03d}", f"{sent!r}", qos=1)
                await asyncio.sleep(
                    max(0.0, TICK + self.random.uniform(-0.05, 0.05) - (time.perf_counter() - sent))
                )

    async def reader(self) -> None:
        async with self._client("level-reader", receive_queue_size=10_000) as client:
            await client.subscribe("plant/level/#", qos=0)
            async for message in client.messages:
                self.delays.append(time.perf_counter() - float(message.text))

    async def worker(self, name: str) -> None:
        # Few at a time: a worker that has fifty jobs in its hands cannot be relieved of them. No load reports, as from
        # any other project's client: the node has to find out by itself who is slow.
        options = {"manual_ack": True, "receive_maximum": 20, "receive_queue_size": 20, "reports": "off"}
        async with self._client(name, **options) as client:
            await client.subscribe("$share/crew/jobs/#", qos=1)
            async for message in client.messages:
                await asyncio.sleep(self.work[name] * self.random.uniform(0.8, 1.2))
                message.ack()
                self.done[name] += 1

    async def foreman(self) -> None:
        async with self._client("foreman") as client:
            number = 0
            while True:
                number += 1
                await client.publish(f"jobs/{number % 10}", f"job {number}", qos=1)
                await asyncio.sleep(self.random.expovariate(JOBS))

    async def report(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            delays, self.delays = sorted(self.delays), []
            found: dict[str, Any] = {"count": len(delays), "done": self.done}
            if delays:
                found["p50_ms"] = round(delays[len(delays) // 2] * 1e3, 2)
                found["p99_ms"] = round(delays[min(len(delays) - 1, len(delays) * 99 // 100)] * 1e3, 2)
            print(json.dumps(found), flush=True)

    async def listen(self) -> None:
        """Orders, line by line; the end of the input is the end of the story."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).decode().strip():
            self.work[CREW[-1]] = SLOW_WORK if line == "slow" else WORK
        os._exit(0)

    def _client(self, name: str, **changes: Any) -> Client:
        return Client(self.url, client_id=name, reconnect=True, keep_alive=30, **changes)


async def main(url: str, sensors: int) -> None:
    plant = Plant(url, seed=7)
    async with asyncio.TaskGroup() as group:
        group.create_task(plant.reader())
        for name in CREW:
            group.create_task(plant.worker(name))
        group.create_task(plant.foreman())
        for number in range(sensors):
            group.create_task(plant.sensor(number))
            if number % 50 == 49:
                await asyncio.sleep(0.1)
        print("ready", flush=True)
        group.create_task(plant.report())
        group.create_task(plant.listen())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
