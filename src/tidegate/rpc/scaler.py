"""Starts and stops router processes as `Autoscaler` says, from what the routers themselves report every second."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.rpc.autoscale import Autoscaler, Sample, Scale
from tidegate.rpc.backbone import ROUTING
from tidegate.rpc.backends import make_queue
from tidegate.rpc.errors import RpcError, Unavailable
from tidegate.rpc.messages import PRIORITIES
from tidegate.rpc.options import BackendName, Options, new_name

log = logging.getLogger(__name__)

STATS = "stats"
_STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1  # prctl(2)
_prctl = ctypes.CDLL(None).prctl  # found here: between fork and exec nothing may be loaded
_MOST = 1e9  # of anything in one report
_SMOOTHING = 0.3  # weight of the latest second in the cost of a request


@dataclass(slots=True)
class _Report:
    taken: int = 0
    arrivals: float = 0.0
    longest: float = 0.0
    busy: float = 0.0


class Scaler:
    """Runs `command` as many times as there should be routers, each with the share `speed` of a processor and the
    variables of `environment` besides our own. `told` gets every decision, for people."""

    def __init__(
        self,
        options: Options,
        scale: Scale,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        speed: float = 1.0,
        every: float = 1.0,
        told: Callable[[Sample, int], None] | None = None,
    ) -> None:
        if scale.minimum == 0 and options.backend == BackendName.MQTT:
            raise RpcError(
                "no router at all on the mqtt backend",
                hint="it refuses requests while nobody serves them: give --min 1, or use rabbitmq+redis",
            )
        self._autoscaler = Autoscaler(scale)
        self._speed = speed
        self._command = list(command)
        self._environment = dict(environment or {})
        self._every = every
        self._told = told
        # One on each machine: a name of its own, or the second would take the first one's connection.
        self._queue = make_queue(options, new_name("scaler"))
        self._processes: list[asyncio.subprocess.Process] = []
        self._report = _Report()
        self._cost = 0.0005  # seconds; until something was measured
        self._backlog = 0
        self.counters: Counter[str] = Counter()
        self.replica_seconds = 0.0

    @property
    def replicas(self) -> int:
        return len(self._processes)

    async def run(self) -> None:
        """Until cancelled; then all processes are stopped."""
        await self._queue.open()
        try:
            await self._queue.listen(STATS, self._on_stats)
            await self._set(self._autoscaler.scale.minimum)
            before = time.monotonic()
            while True:
                await asyncio.sleep(self._every)
                now = time.monotonic()
                self.replica_seconds += self.replicas * (now - before)
                try:
                    await self._decide(now, now - before)
                except Exception:  # routers that run are worth more than a decision
                    self.counters["failed"] += 1
                    log.exception("nothing could be decided")
                before = now
        finally:
            await self._set(0)
            await self._queue.close()

    async def _decide(self, now: float, seconds: float) -> None:
        sample = await self._sample(now, seconds)
        wanted = self._autoscaler.decide(sample)
        if self._told is not None:
            self._told(sample, wanted)
        await self._set(wanted)

    async def _sample(self, now: float, seconds: float) -> Sample:
        report, self._report = self._report, _Report()
        if report.taken:
            self._cost += _SMOOTHING * (report.busy / report.taken / self._speed - self._cost)
        waiting = await self._waiting()
        grown, self._backlog = waiting - self._backlog, waiting
        return Sample(
            now=now,
            # Nobody measures arrivals while there is no router; then the backlog grows by them.
            arrivals=max(report.arrivals, grown / seconds),
            cost=self._cost,
            # Routers hold some that no queue counts any more; how old the oldest is tells how many (Little's law).
            backlog=max(waiting, round(report.arrivals * report.longest)),
            oldest=report.longest,
            replicas=self.replicas,
        )

    async def _waiting(self) -> int:
        """Messages in the queues, if the backend knows; a bundle counts as one, so this is the least there can be."""
        try:
            counts = [await self._queue.backlog(f"{ROUTING}.{priority}") for priority in PRIORITIES]
        except Unavailable as error:
            log.warning("the backlog cannot be read", extra={"error": str(error)})
            return self._backlog
        return sum(count or 0 for count in counts)

    def _on_stats(self, body: bytes) -> None:
        try:
            content = json.loads(body)
            taken, arrivals = int(content["taken"]), float(content["arrivals"])
            longest, busy = float(content["longest"]), float(content["busy"])
            if not all(0.0 <= value <= _MOST for value in (taken, arrivals, longest, busy)):
                raise ValueError("no such load")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self.counters["malformed"] += 1
            return
        self._report.taken += taken
        self._report.arrivals += arrivals
        self._report.busy += busy
        self._report.longest = max(self._report.longest, longest)

    async def _set(self, wanted: int) -> None:
        self._processes = [each for each in self._processes if each.returncode is None]
        while len(self._processes) < wanted:
            self.counters["started"] += 1
            self._processes.append(
                await asyncio.create_subprocess_exec(
                    *self._command,
                    stdout=asyncio.subprocess.DEVNULL,
                    env=os.environ | self._environment,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            )
        leaving = self._processes[wanted:]
        del self._processes[wanted:]
        for process in leaving:
            self.counters["stopped"] += 1
            process.send_signal(signal.SIGTERM)
        if leaving:
            await asyncio.gather(*map(_end, leaving))


def _end_with_parent() -> None:
    """In the new process: a scaler that is killed must not leave routers behind that nobody counts."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _end(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
