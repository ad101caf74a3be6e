"""The modes that move messages: as fast as the window allows, or at a fixed rate."""

from __future__ import annotations

import time

from tidegate.load.engine import Engine, Meter, Progress
from tidegate.load.flows import Flow, make_flows
from tidegate.load.result import Result
from tidegate.load.settings import Mode, Settings

# What is still on its way after this long is a drop, even if some of it keeps trickling in.
_DRAIN_SECONDS = 60.0
# Nothing at all came for so long while the window is full: the broker dropped what is missing.
_STALLED_SECONDS = 0.5
_LATE_NS = 5_000_000


def run_traffic(settings: Settings, engine: Engine, result: Result, progress: Progress | None) -> None:
    """Connect, warm up, measure, drain and count; fills `result`."""
    flows = make_flows(settings)
    streams = [stream for flow in flows for stream in flow.streams]
    # Subscribers first: what is published before a subscription exists is nobody's.
    engine.open((client for flow in flows for client in flow.subscribers), progress)
    engine.open((publisher.client for flow in flows for publisher in flow.publishers), progress)
    meter = Meter(settings, streams)
    # Both ends of the window are fixed now: a slow moment must not add messages to a paced run.
    began = time.monotonic()
    warm = began + settings.warmup
    send: _Paced | _Saturating
    if settings.mode is Mode.TRICKLE:
        send = _Paced(settings, engine, flows, began)
    else:
        send = _Saturating(engine, flows)
    if progress is not None:
        progress(f"warm-up of {settings.warmup:g} s")
    send.until(warm)
    if progress is not None:
        progress(f"measuring for {settings.seconds:g} s")
    if isinstance(send, _Paced):
        send.late = 0
    meter.start()
    send.until(warm + settings.seconds)
    meter.stop(result)
    if isinstance(send, _Paced):
        result.late_sends = send.late
    _drain(engine, flows, settings.quiet)
    result.sent = sum(flow.sent for flow in flows)
    result.expected = sum(flow.sent * flow.copies for flow in flows)
    result.received = sum(flow.received for flow in flows)
    # A message seen twice must not make up for one that is missing.
    result.repeats = sum(stream.repeats for stream in streams)
    unseen = result.expected - (result.received - result.repeats)
    if unseen < 0:
        result.repeats += -unseen
    result.drops = max(0, unseen)
    result.refused = sum(publisher.stream.refused for flow in flows for publisher in flow.publishers)


class _Saturating:
    """Every publisher sends whenever its window and its acknowledgements allow."""

    def __init__(self, engine: Engine, flows: list[Flow]) -> None:
        self._engine = engine
        self._flows = flows

    def until(self, end: float) -> None:
        engine, flows, clock = self._engine, self._flows, time.monotonic
        last = now = clock()
        while now < end:
            for flow in flows:
                flow.send()
            ready = engine.turn(0.05)
            now = clock()
            if ready:
                last = now
            elif now - last > _STALLED_SECONDS:
                for flow in flows:
                    flow.write_off()
                last = now


class _Paced:
    """Every publisher sends one message at a time, at its own phase, whatever the broker does (open loop)."""

    def __init__(self, settings: Settings, engine: Engine, flows: list[Flow], began: float) -> None:
        self._engine = engine
        self._publishers = [publisher for flow in flows for publisher in flow.publishers]
        self._interval_ns = 1e9 / (settings.rate * len(self._publishers))
        self._started_ns = int(began * 1e9)
        self._count = 0
        self.late = 0

    def until(self, end: float) -> None:
        end_ns = int(end * 1e9)
        publishers, engine = self._publishers, self._engine
        while True:
            due_ns = self._started_ns + int(self._count * self._interval_ns)
            if due_ns >= end_ns:
                return
            engine.turn_until(due_ns)
            if time.monotonic_ns() - due_ns > _LATE_NS:
                self.late += 1
            publishers[self._count % len(publishers)].send(1)
            self._count += 1


def _drain(engine: Engine, flows: list[Flow], quiet: float) -> None:
    """Receive until nothing is missing and all is acknowledged, or nothing more comes for `quiet` s."""
    last = started = time.monotonic()
    while last - started < _DRAIN_SECONDS:
        unacknowledged = sum(
            publisher.sent - publisher.stream.acknowledged
            for flow in flows
            for publisher in flow.publishers
            if publisher.burst.qos
        )
        if not unacknowledged and not any(flow.missing for flow in flows):
            return
        if engine.turn(quiet):
            last = time.monotonic()
        elif time.monotonic() - last >= quiet:
            return
