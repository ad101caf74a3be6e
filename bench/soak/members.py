"""A member of a shared subscription is killed again and again: what do the others notice, and is anything lost?

Four members, each a process that works on a message for a while and acknowledges after that. Messages come at QoS 1 as
from many independent senders (Poisson), so that in a quiet phase too one of them sometimes waits. The first member is
killed with SIGKILL in the midst of its work and started again. Phases without and with kills alternate against one
broker, so that a busy machine disturbs both alike; in those without, a client of another group, which has nothing to
do, is killed and started as often: what it costs a small machine to start a process is no matter of the broker. Latency
is from publishing to the beginning of work, of what the other three members did.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from bench.soak.broker import BrokerProcess
from tidegate.client import Client
from tidegate.load.result import percentile

FILTER = "$share/crew/soak/jobs/+"
TOPIC = "soak/jobs/1"
IDLE_FILTER = "$share/idle/soak/idle"
MEMBERS = 4
RATE = 400.0  # messages a second: two fifths of what four members can do
WORK_SECONDS = 0.004
WARM_UP_SECONDS = 2.0  # until the broker knows how fast each member is
BETWEEN_SECONDS = 1.0  # from the moment a member works again to its next kill
LAST_SECONDS = 30.0  # for what is on its way in the end
POLL = 0.01
SEED = 5
Say = Callable[[str], None]


@dataclass(kw_only=True, slots=True)
class Phase:
    """What the members that were not killed did with the messages of one phase; times in milliseconds."""

    kills: int
    seconds: float = 0.0
    published: int = 0
    done: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0
    moved: int = 0


@dataclass(kw_only=True, slots=True)
class Outcome:
    """`lost`: acknowledged to the publisher, and nobody worked on it. `repeated`: worked on more than once."""

    kills: int = 0
    published: int = 0
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    moved: int = 0
    quiet_p99_ms: float = 0.0
    killing_p99_ms: float = 0.0
    ratio: float = 0.0
    phases: list[Phase] = field(default_factory=list)


class Member:
    """The process, seen from the one that started it."""

    def __init__(self, port: int, name: str, topic_filter: str, folder: Path) -> None:
        self._record = folder / name
        self._command = [
            *(sys.executable, "-m", "bench.soak.member"),
            *(str(port), name, topic_filter, str(WORK_SECONDS), str(self._record)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    async def ready(self) -> None:
        """It has subscribed."""
        assert self._process is not None and self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        if not line:
            raise RuntimeError(f"a member ended with status {self._process.wait()}")

    def size(self) -> int:
        """Grows when it has worked on a message."""
        return self._record.stat().st_size if self._record.exists() else 0

    def done(self) -> list[tuple[int, int]]:
        """(number, nanoseconds from publishing to the beginning of work) of all it did; a torn last line counts not."""
        found = []
        for line in self._record.read_bytes().split(b"\n")[:-1]:
            number, published_ns, began_ns = map(int, line.split())
            found.append((number, began_ns - published_ns))
        return found


class Publisher:
    """Sends numbered messages at random times, whatever comes back, until it is stopped."""

    def __init__(self, client: Client, rate: float, random: Random) -> None:
        self._client = client
        self._rate = rate
        self._random = random
        self._is_over = False
        self.published = 0
        self.acknowledged: set[int] = set()
        self.refused: list[BaseException] = []

    async def run(self) -> None:
        due = time.monotonic()
        while not self._is_over:
            while due <= time.monotonic():
                due += self._random.expovariate(self._rate)
                payload = b"%d %d" % (self.published, time.monotonic_ns())
                future = self._client.publish_nowait(TOPIC, payload, qos=1)
                future.add_done_callback(lambda done, number=self.published: self._on_done(done, number))  # type: ignore[misc]
                self.published += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _on_done(self, future: asyncio.Future[object], number: int) -> None:
        error = future.exception()
        if error is None:
            self.acknowledged.add(number)
        else:
            self.refused.append(error)

    def stop(self) -> None:
        self._is_over = True


def run(
    *,
    kills: int = 50,
    rounds: int = 5,
    rate: float = RATE,
    settings: tuple[str, ...] = (),
    data: Path | None = None,
    say: Say = lambda _: None,
) -> Outcome:
    """`rounds` times a phase without kills of members and one with a part of the `kills`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(BrokerProcess(*settings, data=data))
        crew = [
            stack.enter_context(Member(broker.port, f"member-{number}", FILTER, folder))
            for number in range(MEMBERS)
        ]
        idle = stack.enter_context(Member(broker.port, "idle", IDLE_FILTER, folder))
        return asyncio.run(_run(broker, crew, idle, kills, rounds, rate, say))


async def _run(
    broker: BrokerProcess, crew: list[Member], idle: Member, kills: int, rounds: int, rate: float, say: Say
) -> Outcome:
    for member in (*crew, idle):
        await member.ready()
    outcome = Outcome(kills=kills)
    bounds: list[int] = []
    async with Client(f"127.0.0.1:{broker.port}", send_queue_size=100_000) as client:
        publisher = Publisher(client, rate, Random(SEED))
        publishing = asyncio.create_task(publisher.run())
        await asyncio.sleep(WARM_UP_SECONDS)
        for number in range(rounds):
            part = kills * (number + 1) // rounds - kills * number // rounds
            for victim in (idle, crew[0]):
                bounds.append(publisher.published)
                began, moved = time.monotonic(), await _moved(broker)
                for _ in range(part):
                    await _kill(victim, is_working=victim is not idle)
                phase = Phase(kills=0 if victim is idle else part, seconds=time.monotonic() - began)
                phase.moved = await _moved(broker) - moved
                outcome.phases.append(phase)
                say(f"{phase.kills} kills in {phase.seconds:.1f} s, {phase.moved} messages moved")
                if publishing.done():
                    publishing.result()
        bounds.append(publisher.published)
        publisher.stop()
        await publishing
        await client.flush()
    if publisher.refused:
        raise RuntimeError(f"{len(publisher.refused)} messages were refused: {publisher.refused[0]}")
    outcome.published = publisher.published
    outcome.acknowledged = len(publisher.acknowledged)
    await _settle(crew, publisher.acknowledged)
    outcome.moved = await _moved(broker)
    _judge(outcome, bounds, publisher.acknowledged, crew)
    return outcome


async def _kill(member: Member, *, is_working: bool) -> None:
    """Kill it in the midst of its work, start it again, and wait until it works."""
    await asyncio.to_thread(member.kill)
    size = member.size()
    await asyncio.to_thread(member.start)
    await member.ready()
    while is_working and member.size() == size:
        await asyncio.sleep(POLL)
    await asyncio.sleep(BETWEEN_SECONDS)


async def _settle(crew: list[Member], wanted: set[int]) -> None:
    """Wait until all is done, or nothing more can be expected."""
    deadline = time.monotonic() + LAST_SECONDS
    while time.monotonic() < deadline:
        if wanted <= {number for member in crew for number, _ in member.done()}:
            return
        await asyncio.sleep(0.2)


async def _moved(broker: BrokerProcess) -> int:
    metrics = await asyncio.to_thread(broker.metrics)
    return int(metrics["shared_moved_total"])


def _judge(outcome: Outcome, bounds: list[int], acknowledged: set[int], crew: list[Member]) -> None:
    done = [member.done() for member in crew]
    numbers = [number for each in done for number, _ in each]
    outcome.lost = len(acknowledged.difference(numbers))
    outcome.repeated = len(numbers) - len(set(numbers))
    others = sorted(entry for each in done[1:] for entry in each)
    pooled: dict[bool, list[int]] = {False: [], True: []}
    for phase, (first, end) in zip(outcome.phases, pairwise(bounds), strict=True):
        latencies = sorted(latency for number, latency in others if first <= number < end)
        pooled[phase.kills > 0] += latencies
        phase.published = end - first
        phase.done = len(latencies)
        phase.p50_ms = percentile(latencies or [0], 0.50) / 1e6
        phase.p99_ms = percentile(latencies or [0], 0.99) / 1e6
        phase.worst_ms = (latencies or [0])[-1] / 1e6
    outcome.quiet_p99_ms = percentile(sorted(pooled[False]) or [0], 0.99) / 1e6
    outcome.killing_p99_ms = percentile(sorted(pooled[True]) or [0], 0.99) / 1e6
    outcome.ratio = outcome.killing_p99_ms / outcome.quiet_p99_ms if outcome.quiet_p99_ms else 0.0
