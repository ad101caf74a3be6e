"""A group of a shared subscription on the virtual clock: one publisher, a broker that chooses, members that work.

Members take one message at a time, in order. They tell the broker of their load in one of the ways of `Signal`; the
policy and what it knows are the objects that serve in the broker, and when to tell what is decided by the client's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from random import Random

from tidegate.client.load_meter import LoadMeter, ReportOptions
from tidegate.flow.shared import ClientLoad, EarliestFinish, Member, SharedPolicy, Thesis
from tidegate.flow.shared.earliest import wait_of
from tidegate.sim import Server, Simulation, Timer

PACKET_OVERHEAD = 4  # fixed headers of a PINGREQ and its PINGRESP
PUBACK = 4


class Signal(StrEnum):
    """What a member tells, and when."""

    NOTHING = "nothing"  # QoS 0, plain pings
    THESIS = "thesis"  # QoS 0, the two numbers of the thesis at fixed intervals
    TOTALS = "totals"  # the same with our counters
    EVENTS = "events"  # and at once when the broker's prediction is off
    ACKNOWLEDGED = "acknowledged"  # QoS 1, acknowledged after processing, no reports


def report_options(signal: Signal, interval: float) -> ReportOptions:
    """What our client is told."""
    if signal in (Signal.NOTHING, Signal.ACKNOWLEDGED):
        return ReportOptions(carrier="off")
    is_fixed = signal is not Signal.EVENTS
    return ReportOptions(
        carrier="ping",
        interval=interval,
        min_interval=min(0.1, interval),
        on_change=not is_fixed,
        when_idle=is_fixed,
        totals=signal is not Signal.THESIS,
    )


@dataclass(slots=True, kw_only=True, frozen=True)
class Worker:
    """A member: seconds a message takes as a function of time, when it joins and leaves, and its one-way delay.

    One that leaves gets nothing more and finishes what it has. `is_measured`: whether the broker knows the delay.
    """

    service: Callable[[float], float]
    joins: float = 0.0
    leaves: float = inf
    delay: float = 0.0
    is_measured: bool = True


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message, with what the broker knew of the member when it chose (columns of spec 5 (c)).

    `score` is the thesis's, or the expected wait with a minus before it; rules that know nothing of load have none.
    """

    msg_id: int
    t_created: float
    t_selected: float
    member: int
    score: float | None
    m_q: int
    m_s: int
    t_p: float
    key: bytes = b"topic"
    t_dequeued: float = inf
    t_done: float = inf

    @property
    def wait(self) -> float:
        """Latency as the thesis has it: from creation until the member begins with it."""
        return self.t_dequeued - self.t_created


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All messages of a run in order of creation, and what members spent on telling their load until `end`."""

    deliveries: list[Delivery] = field(default_factory=list)
    control_bytes: int = 0
    reports: int = 0
    end: float = inf  # when the last message is created
    phases: list[float] = field(default_factory=list)  # of the members' ping timers, seconds

    def waits(self) -> list[float]:
        return [delivery.wait for delivery in self.deliveries]


class _Client:
    """A member's end: works, and reports or acknowledges."""

    __slots__ = (
        "interval", "load", "member", "meter", "outcome", "server", "signal", "sim", "timer", "worker"
    )  # fmt: skip

    def __init__(
        self,
        sim: Simulation,
        number: int,
        worker: Worker,
        signal: Signal,
        interval: float,
        phase: float,
        outcome: Outcome,
    ) -> None:
        self.sim = sim
        self.worker = worker
        self.signal = signal
        self.interval = interval
        self.outcome = outcome
        self.load = ClientLoad(sim.now)
        self.member = Member(f"subscriber-{number}", self.load, sim.now)
        if worker.is_measured:
            self.load.on_rtt(2.0 * worker.delay)
        self.server: Server[Delivery] = Server(
            sim, service=lambda _: worker.service(sim.now), done=self._on_done, started=self._on_started
        )
        self.timer: Timer | None = None
        self.meter = LoadMeter(report_options(signal, interval))
        began = sim.now - phase  # its pings began before the experiment did
        self.meter.on_connected(began)
        if signal in (Signal.THESIS, Signal.TOTALS, Signal.EVENTS):
            self.load.is_known = True  # negotiated when it connected
        if signal in (Signal.THESIS, Signal.TOTALS):
            sim.at(began + interval, self._tick)

    def send(self, delivery: Delivery) -> None:
        is_acknowledged = self.signal is Signal.ACKNOWLEDGED
        self.member.on_sent(self.sim.now, 1 if is_acknowledged else 0)
        self.sim.after(self.worker.delay, lambda: self.server.submit(delivery))

    def _on_started(self, delivery: Delivery) -> None:
        delivery.t_dequeued = self.sim.now

    def _on_done(self, delivery: Delivery) -> None:
        sim = self.sim
        delivery.t_done = sim.now
        self.meter.on_done(sim.now - delivery.t_dequeued)
        if self.signal is Signal.ACKNOWLEDGED:
            sim.after(self.worker.delay, lambda: self.load.on_done(sim.now))
            self.outcome.control_bytes += PUBACK
        elif self.signal is Signal.EVENTS:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = sim.after(0.0, self._look)  # when the next message was taken

    def _tick(self) -> None:
        self._report()
        self.sim.after(self.interval, self._tick)

    def _look(self) -> None:
        """Report if that is due, else look again before long, as the client does."""
        self.timer = None
        if self.meter.is_due(len(self.server), self.sim.now):
            self._report()
        if self.meter.has_news or len(self.server):
            self.timer = self.sim.after(self.meter.next_look(self.sim.now), self._look)

    def _report(self) -> None:
        report = self.meter.take_report(len(self.server), self.sim.now)
        if self.sim.now <= self.outcome.end:
            self.outcome.reports += 1
            self.outcome.control_bytes += PACKET_OVERHEAD + len(report.encode_pingreq())
        self.sim.after(self.worker.delay, lambda: self.load.on_report(self.sim.now, report))


class Group:
    """The broker's side: one group, one policy."""

    __slots__ = ("_members", "_random", "clients", "outcome", "policy", "publisher", "sim")

    def __init__(self, sim: Simulation, policy: SharedPolicy, publisher: str = "publisher") -> None:
        self.sim = sim
        self.policy = policy
        self.publisher = publisher
        self.outcome = Outcome()
        self.clients: list[tuple[int, _Client]] = []
        self._members: tuple[Member, ...] = ()
        self._random: Random = sim.random("policy")

    def join(self, number: int, worker: Worker, signal: Signal, interval: float, phase: float) -> None:
        client = _Client(self.sim, number, worker, signal, interval, phase, self.outcome)
        self._change([*self.clients, (number, client)])
        if worker.leaves < inf:
            self.sim.at(
                worker.leaves,
                lambda: self._change([entry for entry in self.clients if entry[1] is not client]),
            )

    def _change(self, clients: list[tuple[int, _Client]]) -> None:
        self.clients = clients
        self._members = tuple(client.member for _, client in clients)

    def publish(self, msg_id: int, created: float, topic: bytes) -> None:
        now = self.sim.now
        number, client = self.clients[
            self.policy.choose(self._members, topic, self.publisher, now, self._random)
        ]
        load = client.load
        delivery = Delivery(
            msg_id=msg_id,
            t_created=created,
            t_selected=now,
            member=number,
            score=self._score(client.member, now),
            m_q=load.queue_length,
            m_s=load.sent_since_report,
            t_p=load.mean_time,
            key=topic,
        )
        self.outcome.deliveries.append(delivery)
        client.send(delivery)

    def _score(self, member: Member, now: float) -> float | None:
        if isinstance(self.policy, Thesis):
            return self.policy.score(member, self.policy.group_mean(self._members), now)
        return -wait_of(member.load, now) if isinstance(self.policy, EarliestFinish) else None


def simulate(
    policy: SharedPolicy,
    workers: Iterable[Worker],
    times: Iterable[float],
    *,
    signal: Signal,
    interval: float = 1.0,
    seed: int = 0,
    drain: float = 60.0,
    topic: Callable[[int], bytes] = lambda _number: b"topic",
    publisher: str = "publisher",
) -> Outcome:
    """One run: messages are created at `times`; then members have `drain` seconds to finish.

    `topic` gives a message's topic by its number. The phase of each member's ping timer and the publisher's start are
    drawn from the seed, the same for every policy.
    """
    sim = Simulation(seed)
    group = Group(sim, policy, publisher)
    random = sim.random("phases")
    offset = random.random() * 0.01
    for number, worker in enumerate(workers):
        phase = random.random() * interval
        group.outcome.phases.append(phase)
        if worker.joins <= 0.0:
            group.join(number, worker, signal, interval, phase)
        else:
            # One that comes later connects then, and its first ping is an interval away.
            sim.at(worker.joins, lambda n=number, w=worker: group.join(n, w, signal, interval, 0.0))  # type: ignore[misc]
    last = 0.0
    for msg_id, time in enumerate(times):
        last = offset + time
        sim.at(last, lambda m=msg_id, t=last: group.publish(m, t, topic(m)))  # type: ignore[misc]
    group.outcome.end = last
    sim.run(last + drain)
    return group.outcome
