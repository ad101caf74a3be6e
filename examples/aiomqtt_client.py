"""aiomqtt against any broker: three workers share the work of one queue.

A shared subscription hands each message to one member of its group. Start a broker (`tidegate serve`), then:

    python examples/aiomqtt_client.py --port 1883
"""

import argparse
import asyncio

import aiomqtt

WORKERS = 3
JOBS = 12


Done = asyncio.Queue[tuple[int, str]]


async def work(host: str, port: int, number: int, ready: asyncio.Barrier, done: Done) -> None:
    async with aiomqtt.Client(host, port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe("$share/crew/harbour/jobs", qos=1)
        await ready.wait()
        async for message in client.messages:
            await done.put((number, bytes(message.payload).decode()))


async def main(host: str, port: int) -> None:
    ready = asyncio.Barrier(WORKERS + 1)
    done: Done = asyncio.Queue()
    async with asyncio.timeout(30), aiomqtt.Client(host, port) as foreman, asyncio.TaskGroup() as group:
        workers = [group.create_task(work(host, port, number, ready, done)) for number in range(WORKERS)]
        await ready.wait()
        for job in range(JOBS):
            await foreman.publish("harbour/jobs", f"job {job}", qos=1)
        finished = [await done.get() for _ in range(JOBS)]
        for worker in workers:
            worker.cancel()
    for number in range(WORKERS):
        print(f"worker {number} did", sum(by == number for by, _ in finished))
    print("jobs done:", len({job for _, job in finished}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.host, arguments.port))
