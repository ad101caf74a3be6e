"""The SIB and its knowledge processors on the virtual clock (spec 3 (c)).

The SIB is one server, first come first served, that takes 1/μ for a request, holds Q of them and drops the rest. A
knowledge processor (KP) whose request was dropped knows after a second. An update is notified to all KPs at once; a
notification is lost with probability p0 + (1 - p0)·(queue / Q). Who was notified asks for the content: the reaction.
Besides, every KP has one check loop, whose waits come from `flow/timeout`. A KP knows an update when a query was
answered that the SIB served after it. What a KP does not know by then is stale; what it never learns is missed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from tidegate.flow.timeout import UNKNOWN, Announcement, Check, Event, Loop, TimeoutPolicy
from tidegate.sim import Simulation, Timer

MU = 40.0  # requests per second
Q = 60
P0 = 0.05
T_NET = 0.01  # there and back
PATIENCE = 1.0  # after which a KP takes its request for dropped
USE = 0.6  # of the capacity that the SIB wishes checks to take
BIN = 0.1  # of arrivals, for peak and dispersion
GAIN = 0.05  # of the SIB's measure of its own service time, as in space/lane.py
CACHED = 0.1  # of the time of a request, if the answer is that of another one at the same version


@dataclass(slots=True, kw_only=True, frozen=True)
class World:
    """What is the same for all policies: `slow` is when the capacity is halved.

    `caches`: the SIB answers identical queries at one version once, and the others from its cache (Table I).
    """

    m: int
    updates: tuple[float, ...]
    seconds: float = 600.0
    mu: float = MU
    is_exponential: bool = True
    slow: tuple[float, float] = (inf, inf)
    announces: bool = True
    announces_rate: bool = True
    caches: bool = False
    queue: int = Q


@dataclass(slots=True)
class Outcome:
    """Raw counts of one run."""

    world: World
    arrivals: list[int] = field(default_factory=list)  # per bin
    sent: int = 0
    dropped: int = 0
    busy: float = 0.0
    responses: list[float] = field(default_factory=list)
    staleness: list[float] = field(default_factory=list)
    unknown: int = 0
    longest_queue: int = 0
    checks: int = 0
    congested: int = 0
    backoff: float = 0.0
    intervals: list[float] = field(default_factory=list)  # mean of each KP


class Sib:
    """The broker's queue, without an event of its own: when a request leaves is known when it comes."""

    __slots__ = (
        "_bins", "_cached", "_free", "_in_system", "_random", "_service", "outcome", "sim", "world"
    )  # fmt: skip

    def __init__(self, sim: Simulation, world: World, outcome: Outcome) -> None:
        self.sim = sim
        self.world = world
        self.outcome = outcome
        self._random = sim.random("service")
        self._free = 0.0
        self._cached = -1  # version that the answer is known of
        self._in_system: deque[float] = deque()
        self._service = 1.0 / world.mu
        outcome.arrivals = [0] * (int(world.seconds / BIN) + 1)
        self._bins = outcome.arrivals

    def queue(self) -> int:
        now, waiting = self.sim.now, self._in_system
        while waiting and waiting[0] <= now:
            waiting.popleft()
        return len(waiting)

    def arrive(self) -> float | None:
        """When the request will be served; None if it is dropped."""
        now, world, outcome = self.sim.now, self.world, self.outcome
        outcome.sent += 1
        self._bins[int(now / BIN)] += 1
        waiting = self._in_system
        while waiting and waiting[0] <= now:
            waiting.popleft()
        length = len(waiting)
        if length >= world.queue:
            outcome.dropped += 1
            return None
        start = max(now, self._free)
        mean = 1.0 / world.mu if not world.slow[0] <= start < world.slow[1] else 2.0 / world.mu
        service = self._random.expovariate(1.0 / mean) if world.is_exponential else mean
        if world.caches:
            version = bisect_right(world.updates, start)
            if version == self._cached:
                service *= CACHED
            self._cached = version
        self._service += GAIN * (service - self._service)
        self._free = start + service
        if self._free <= world.seconds:
            outcome.busy += service
        waiting.append(self._free)
        if length >= outcome.longest_queue:
            outcome.longest_queue = length + 1
        return self._free

    def announce(self) -> Announcement:
        if not self.world.announces:
            return UNKNOWN
        service, m = self._service, self.world.m
        return Announcement(
            processing=service,
            queueing=max(0.0, self._free - self.sim.now),
            limit=0.5 * Q * service,
            capacity=1.0 / service,
            watchers=m,
            rate=USE / service / m if self.world.announces_rate else 0.0,
        )


class Kp:
    """One knowledge processor."""

    __slots__ = (
        "_check_timer", "_is_reacting", "_last_check", "_number", "_pending", "_random", "_record",
        "_sib", "_sim", "_sum", "_times", "checks", "gate", "known", "loop", "notified", "seen"
    )  # fmt: skip

    def __init__(self, sib: Sib, number: int, loop: Loop, record: Callable[[Kp, Check, float], None] | None):
        self._sib = sib
        self._sim = sib.sim
        self._number = number
        self._random: Random = sib.sim.random(f"kp{number}")
        self._record = record
        self.loop = loop
        self.gate: Callable[[Callable[[], None]], None] | None = (
            None  # something that may hold a request back
        )
        self.known = 0  # version whose content it has
        self.seen = 0  # version at the last check
        self.notified = 0  # since then
        self.checks = 0
        self._sum = 0.0  # of intervals
        self._last_check = 0.0
        self._check_timer: Timer | None = None
        self._pending: Timer | None = None  # a reaction that waits
        self._is_reacting = False
        self._times = sib.world.updates
        self._plan(loop.start(self._random))

    @property
    def number(self) -> int:
        return self._number

    @property
    def outcome(self) -> Outcome:
        return self._sib.outcome

    @property
    def mean_interval(self) -> float:
        return self._sum / self.checks if self.checks else 0.0

    def _plan(self, wait: float) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._check_timer = self._sim.after(wait, self._check) if wait < inf else None

    def _check(self) -> None:
        self._check_timer = None
        self._ask(self._on_check)

    def _ask(self, then: Callable[[float, float | None], None]) -> None:
        now = self._sim.now
        if self.gate is None:
            self._send(now, then)
        else:
            self.gate(lambda: self._send(now, then))

    def _send(self, now: float, then: Callable[[float, float | None], None]) -> None:
        served = self._sib.arrive()
        if served is None:
            self._sim.after(PATIENCE, lambda: then(now, None))
        else:
            self._sim.at(served + T_NET, lambda: then(now, served))

    def _learn(self, asked: float, served: float) -> int:
        """An answer: how many updates it brought that nobody had told of."""
        outcome, now = self._sib.outcome, self._sim.now
        outcome.responses.append(now - asked)
        version = bisect_right(self._times, served)
        for number in range(self.known, version):
            outcome.staleness.append(now - self._times[number])
        self.known = max(self.known, version)
        losses = max(0, version - self.seen - self.notified)
        self.seen, self.notified = max(self.seen, version), 0
        return losses

    def _on_check(self, asked: float, served: float | None) -> None:
        now = self._sim.now
        interval, self._last_check = asked - self._last_check, asked
        self.checks += 1
        self._sum += interval
        if served is None:
            check = Check(interval=interval, duration=now - asked, is_dropped=True)
        else:
            losses = self._learn(asked, served)
            check = Check(interval=interval, duration=now - asked, losses=losses, load=self._sib.announce())
            if self._pending is not None and self.loop.counts_reactions:
                self._pending.cancel()  # the check brought what it was to ask for
                self._pending = None
        self._after(check, asked)

    def _after(self, check: Check, asked: float) -> None:
        wait = self.loop.check(check, self._random)
        outcome = self._sib.outcome
        outcome.checks += 1
        outcome.congested += self.loop.is_congested
        outcome.backoff += self.loop.t_bck
        if self._record is not None:
            self._record(self, check, asked)
        self._plan(wait)

    def notify(self, load: Announcement) -> None:
        self.notified += 1
        if self._pending is None and not (self._is_reacting and self.loop.counts_reactions):
            self._pending = self._sim.after(self.loop.react(self._random, load), self._react)

    def _react(self) -> None:
        self._pending = None
        self._is_reacting = True
        self._ask(self._on_reaction)

    def _on_reaction(self, asked: float, served: float | None) -> None:
        self._is_reacting = False
        now = self._sim.now
        if served is None:
            check = Check(interval=now - self._last_check, duration=now - asked, is_dropped=True)
            wait = self.loop.retry(check, self._random)
            if wait is not None and self._pending is None:
                self._pending = self._sim.after(wait, self._react)
            return
        seen, notified = self.seen, self.notified
        losses = self._learn(asked, served)
        if self.loop.counts_reactions:
            interval, self._last_check = asked - self._last_check, asked
            self.checks += 1
            self._sum += interval
            self._after(
                Check(interval=interval, duration=now - asked, losses=losses, load=self._sib.announce()),
                asked,
            )
        else:
            # The check loop of the paper knows nothing of reactions; it still finds what was lost.
            self.seen, self.notified = seen, notified


def simulate(
    policy: TimeoutPolicy,
    world: World,
    seed: int,
    *,
    name: tuple[str, str, str] = ("", "", ""),
    record: Callable[[Event], None] | None = None,
    attach: Callable[[Simulation, list[Kp]], None] | None = None,
) -> Outcome:
    """One run; `name` are level, requirement and first choice for the event records.

    `attach` is shown the KPs before anything happens.
    """
    sim = Simulation(seed)
    outcome = Outcome(world)
    sib = Sib(sim, world, outcome)
    noter = None if record is None else _noter(sim, world, seed, name, record)
    kps = [Kp(sib, number, policy.loop(), noter) for number in range(world.m)]
    if attach is not None:
        attach(sim, kps)
    chance = sim.random("notifications")

    def update() -> None:
        lost = P0 + (1.0 - P0) * min(1.0, sib.queue() / Q)
        load = sib.announce()
        for kp in kps:
            # Drawn for everybody, so that policies meet the same luck as far as they can.
            if chance.random() >= lost:
                sim.after(T_NET / 2.0, lambda kp=kp: kp.notify(load))  # type: ignore[misc]

    for time in world.updates:
        sim.at(time, update)
    sim.run(world.seconds)
    outcome.unknown = sum(len(world.updates) - kp.known for kp in kps)
    outcome.intervals = [kp.mean_interval for kp in kps if kp.checks]
    return outcome


def _noter(
    sim: Simulation, world: World, seed: int, name: tuple[str, str, str], record: Callable[[Event], None]
) -> Callable[[Kp, Check, float], None]:
    level, requirement, init_mode = name

    def note(kp: Kp, check: Check, asked: float) -> None:
        record(
            Event(
                run=f"m{world.m}/{seed}",
                level=level,
                requirement=requirement,
                init_mode=init_mode,
                kp=kp.number,
                check=kp.checks,
                t_send=asked,
                t_resp=sim.now,
                dropped=check.is_dropped,
                losses=check.losses,
                t_ast=kp.loop.t_ast,
                t_bck=kp.loop.t_bck,
                t_avg=kp.loop.t_avg,
                congested=kp.loop.is_congested,
                version_seen=kp.known,
                version_true=bisect_right(world.updates, sim.now),
            )
        )

    return note
