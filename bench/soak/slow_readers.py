"""Subscribers that never read, beside healthy ones: what do the healthy ones notice, and what does memory do?

Publishers send as fast as a closed window allows to topics that everybody subscribes to. Phases without and with
the slow subscribers alternate against one broker, so that a busy machine disturbs both alike. In the end the slow
ones stay for a longer while, and the kernel's own mark of the highest memory is read.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.soak.broker import BrokerProcess
from tidegate.load import packets
from tidegate.load.clients import Access, Client
from tidegate.load.engine import Engine
from tidegate.load.flows import Flow, Publisher
from tidegate.load.result import percentile
from tidegate.load.settings import Settings, make_settings
from tidegate.load.streams import SubscriberStream

PREFIX = "soak/slow"
STALLED_SECONDS = 0.5  # nothing came for so long while the window is full: what is missing was dropped
WARM_UP_SECONDS = 5.0
# A hundred full queues are 40 % of the bound over all sessions, so that the next slow client is still let in.
QUEUES = ("limits.max_queued_bytes=4000000",)
Say = Callable[[str], None]


@dataclass(kw_only=True, slots=True)
class Phase:
    """What the healthy subscribers saw in one phase; times in milliseconds."""

    slow: int
    seconds: float = 0.0
    delivered: int = 0
    missing: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0
    stalled_seconds: float = 0.0  # longest time in which nothing came while messages were due


@dataclass(kw_only=True, slots=True)
class Outcome:
    """All phases, and what memory did; `peak_bytes` is the kernel's high-water mark."""

    qos: int
    phases: list[Phase] = field(default_factory=list)
    ratio: float = 0.0
    max_memory_bytes: int = 0
    peak_bytes: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def never_reading(port: int, count: int, *, qos: int) -> Iterator[list[socket.socket]]:
    """Clients that subscribe to everything here and never read again; their sockets have the usual buffers."""
    clients: list[socket.socket] = []
    try:
        for index in range(count):
            client = socket.create_connection(("127.0.0.1", port), 10)
            clients.append(client)
            client.sendall(packets.connect(f"slow-{index}", protocol=4))
            connack = _read(client, 4)
            if connack[3]:
                raise ConnectionRefusedError(f"slow client {index} was refused with code {connack[3]}")
            client.sendall(packets.subscribe(1, f"{PREFIX}/+", qos=qos, protocol=4))
            _read(client, 5)
        yield clients
    finally:
        for client in clients:
            client.close()


def _read(client: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes: what is published after the SUBACK stays in the kernel."""
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


class Healthy:
    """Publishers, healthy subscribers, and the window between them; one connection each for the whole run."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._streams = [
            SubscriberStream(payload_bytes=settings.payload_bytes, is_ordered=False)
            for _ in range(settings.subscribers)
        ]
        subscribers = [
            Client(f"healthy-{index}", stream, topic_filter=f"{PREFIX}/+", qos=settings.qos)
            for index, stream in enumerate(self._streams)
        ]
        publishers = [
            Publisher(settings, f"{PREFIX}/{index:04d}", f"publisher-{index}")
            for index in range(settings.publishers)
        ]
        engine.open(subscribers)
        engine.open(publisher.client for publisher in publishers)
        self._flow = Flow(
            publishers=publishers,
            subscribers=subscribers,
            streams=self._streams,
            window=settings.window,
            batch=settings.batch,
            copies=len(subscribers),
        )

    def run(self, seconds: float, slow: int, watch: Callable[[], None] | None = None) -> Phase:
        """Publish at full speed for so long; `watch` is called about ten times a second."""
        phase = Phase(slow=slow)
        latencies: list[int] = []
        for stream in self._streams:
            stream.latencies_ns = latencies
        flow, engine, clock = self._flow, self._engine, time.monotonic
        received = flow.received
        began = last = now = clock()
        watched = began
        while now < began + seconds:
            flow.send()
            if engine.turn(0.02):
                now = last = clock()
            else:
                now = clock()
                phase.stalled_seconds = max(phase.stalled_seconds, now - last)
                if now - last > STALLED_SECONDS and not flow.publishers[0].burst.qos:
                    flow.write_off()
            if watch is not None and now - watched > 0.1:
                watched = now
                watch()
        phase.seconds = now - began
        phase.delivered = flow.received - received
        for stream in self._streams:
            stream.latencies_ns = None
        ordered = sorted(latencies)
        if ordered:
            phase.p50_ms = percentile(ordered, 0.50) / 1e6
            phase.p99_ms = percentile(ordered, 0.99) / 1e6
            phase.worst_ms = ordered[-1] / 1e6
        return phase

    def settle(self, seconds: float = 10.0) -> int:
        """Receive what is on its way; gives how many deliveries never came."""
        end = time.monotonic() + seconds
        while self._flow.missing and time.monotonic() < end:
            if not self._engine.turn(0.5):
                break
        return self._flow.missing


def run(
    *,
    qos: int,
    slow: int = 100,
    rounds: int = 3,
    seconds: float = 10.0,
    long_seconds: float = 120.0,
    max_memory: int = 400_000_000,
    settings: tuple[str, ...] = (),
    say: Say = lambda _: None,
) -> Outcome:
    """Measure; the slow clients of a phase are cut off at its end, by us."""
    outcome = Outcome(qos=qos, max_memory_bytes=max_memory)
    load = make_settings("fanin", qos=qos, publishers=10, window=2_000, batch=100, inflight=100)
    load = replace(load, subscribers=10)
    # The slow ones are to stay: this is about what happens while they are there, not about getting rid of them.
    options = (f"limits.max_memory={max_memory}", "limits.write_timeout=3600", *(settings or QUEUES))
    with BrokerProcess(*options) as broker, Engine(Access(host="127.0.0.1", port=broker.port)) as engine:
        healthy = Healthy(engine, load)
        healthy.run(1.0, 0)
        for number in range(rounds):
            for count in (0, slow):
                with never_reading(broker.port, count, qos=qos):
                    _warm_up(broker, healthy, count)
                    outcome.phases.append(healthy.run(seconds, count))
                say(f"round {number + 1}, {count} slow: {_line(outcome.phases[-1])}")
        if long_seconds:
            with never_reading(broker.port, slow, qos=qos):
                outcome.phases.append(healthy.run(long_seconds, slow))
                outcome.metrics = broker.metrics()
            say(f"{long_seconds:g} s, {slow} slow: {_line(outcome.phases[-1])}")
        outcome.phases[-1].missing = healthy.settle()
        outcome.peak_bytes = broker.peak_bytes()
        if not outcome.metrics:
            outcome.metrics = broker.metrics()
    alternating = outcome.phases[: 2 * rounds]
    # The median of the ratios of neighbours: a disturbance that lasts longer than a phase hits both.
    outcome.ratio = statistics.median(
        with_slow.p99_ms / without.p99_ms
        for without, with_slow in zip(alternating[::2], alternating[1::2], strict=True)
        if without.p99_ms
    )
    return outcome


def _warm_up(broker: BrokerProcess, healthy: Healthy, count: int) -> None:
    """Go on until what is queued for the slow ones grows no more: filling kernel buffers costs time only once."""
    queued = -1.0
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        healthy.run(0.3, count)
        before, queued = queued, broker.metrics()["queued_bytes"]
        if queued == before and (queued or not count):
            return


def _line(phase: Phase) -> str:
    rate = phase.delivered / phase.seconds
    return (
        f"{rate:,.0f} deliveries/s, p50 {phase.p50_ms:.1f} ms, p99 {phase.p99_ms:.1f} ms, "
        f"worst {phase.worst_ms:.0f} ms, longest silence {phase.stalled_seconds:.2f} s"
    )
