"""One measured client process: `python -m bench.client.work LIBRARY ROLE QOS PORT MESSAGES`.

The same program for both libraries, as their documentation says to write it. It prints one line of JSON at the end; a
receiver also prints a line when it is subscribed and one for every `STEP` messages, by which the feeder knows how much
is under way. CPU time is the process's own, from the first message to the last.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

STEP = 500
TOPIC = "bench/client/one"
PAYLOAD = b"x" * 64
TASKS = (
    10  # publishers of QoS 1 at a time: with more, aiomqtt logs a warning each time, which would cost it CPU
)


@asynccontextmanager
async def connected(library: str, port: int) -> AsyncIterator[Any]:
    if library == "aiomqtt":
        import aiomqtt

        # Its default refuses nothing either: 0 means no bound on its queue.
        async with aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5) as other:
            yield other
    else:
        from tidegate.client import Client

        async with Client(f"127.0.0.1:{port}") as ours:
            yield ours


async def receive(client: Any, qos: int, number: int) -> float:
    await client.subscribe(TOPIC, qos=qos)
    print("ready", flush=True)
    count = 0
    began = 0.0
    async for message in client.messages:
        if not count:
            began = time.process_time()
        assert len(message.payload) == len(PAYLOAD)
        count += 1
        if count % STEP == 0:
            print(count, flush=True)
        if count == number + 1:  # The first only starts the clock.
            break
    return time.process_time() - began


async def publish(client: Any, qos: int, number: int) -> float:
    async def some(count: int) -> None:
        send: Callable[..., Awaitable[Any]] = client.publish
        for _ in range(count):
            await send(TOPIC, PAYLOAD, qos=qos)

    await some(100)
    began = time.process_time()
    if qos == 0:
        await some(number)
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(some(number // TASKS))
    return time.process_time() - began


async def main(library: str, role: str, qos: int, port: int, number: int) -> None:
    async with connected(library, port) as client:
        seconds = await (receive if role == "receive" else publish)(client, qos, number)
        print(json.dumps({"cpu_seconds": seconds, "messages": number}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])))
