"""Workers that share a queue: each job goes to the worker that will get to it first.

Workers acknowledge a job when it is done, not when it comes: what a worker that dies had in hand goes to another, and
the broker learns how fast each one is. They also report their load (see docs/client.md); `tidegate top --view groups`
shows what the broker makes of it. Here one worker is four times as slow as the other. Start a broker
(`tidegate serve`), then:

    python examples/client_worker.py --url mqtt://127.0.0.1:1883
"""

import argparse
import asyncio
from collections import Counter

from tidegate.client import Client, ReportOptions
from tidegate.errors import TidegateError

JOBS = 200
PACE = 0.005  # seconds from one job to the next: the two together do 250 a second
SECONDS = {"fast": 0.005, "slow": 0.02}
REPORTS = ReportOptions(interval=0.5)


async def work(url: str, name: str, ready: asyncio.Event, done: "asyncio.Queue[tuple[str, int]]") -> None:
    # `receive_maximum` jobs at most are with this worker: the rest waits where a free one can get it.
    async with Client(url, client_id=name, manual_ack=True, receive_maximum=10, reports=REPORTS) as client:
        await client.subscribe("$share/crew/jobs/+", qos=1)
        ready.set()
        async for job in client.messages:
            await asyncio.sleep(SECONDS[name])  # the work
            done.put_nowait((name, int(job.text)))
            job.ack()


async def main(url: str) -> None:
    done: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    async with asyncio.timeout(60), Client(url) as foreman, asyncio.TaskGroup() as group:
        workers = []
        for name in SECONDS:
            ready = asyncio.Event()
            workers.append(group.create_task(work(url, name, ready, done)))
            await ready.wait()
        for number in range(JOBS):
            await foreman.publish(f"jobs/{number % 3}", str(number), qos=1)
            await asyncio.sleep(PACE)
        results = [await done.get() for _ in range(JOBS)]
        for worker in workers:
            worker.cancel()
    shares = Counter(name for name, _ in results)
    print("jobs done:", len({number for _, number in results}))
    print("the fast one did more:", shares["fast"] > shares["slow"])
    if shares["fast"] <= shares["slow"]:
        print("this broker deals jobs out in turn, whoever keeps up (Mosquitto does)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="mqtt://127.0.0.1:1883")
    try:
        asyncio.run(main(parser.parse_args().url))
    except TidegateError as error:
        raise SystemExit(f"error: {error}\nhint: {error.hint}") from None
