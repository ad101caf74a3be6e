"""A member of a shared subscription in its own process: `python -m bench.soak.member PORT NAME FILTER SECONDS FILE`.

It works on one message for so many seconds, then writes a line to the file (number, when it was published, when work
on it began; nanoseconds), then acknowledges. The line is the kernel's before the acknowledgement is the broker's, so a
SIGKILL at any moment cannot make a message look worked on that was not, or lose one that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from tidegate.client import Client

SESSION_EXPIRY = 3600  # it comes back to the same session, whatever was left of it
RECEIVE_MAXIMUM = 20


async def work(port: int, name: str, topic_filter: str, seconds: float, path: str) -> None:
    record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    async with Client(
        f"127.0.0.1:{port}",
        client_id=name,
        clean_start=False,
        session_expiry_interval=SESSION_EXPIRY,
        receive_maximum=RECEIVE_MAXIMUM,
        manual_ack=True,
    ) as client:
        await client.subscribe(topic_filter, qos=1)
        print("ready", flush=True)
        async for job in client.messages:
            began_ns = time.monotonic_ns()
            await asyncio.sleep(seconds)
            os.write(record, job.payload + b" %d\n" % began_ns)
            job.ack()


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5]))
