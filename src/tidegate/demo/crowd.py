"""Subscribers for the demo's cluster, and a publisher for them: `python -m tidegate.demo.crowd URL COUNT`."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from tidegate.client import Client


async def reader(url: str, number: int) -> None:
    name = f"screen-{number:02d}"
    async with Client(url, client_id=name, session_expiry_interval=60, reconnect=True) as client:
        await client.subscribe(f"news/{number % 4}", qos=1)
        async for _ in client.messages:
            pass


async def publisher(url: str) -> None:
    async with Client(url, client_id="newsroom", reconnect=True) as client:
        number = 0
        while True:
            number += 1
            await client.publish(f"news/{number % 4}", f"headline {number}", qos=1)
            await asyncio.sleep(0.05)


async def main(url: str, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(reader(url, number))
        group.create_task(publisher(url))
        print("ready", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
