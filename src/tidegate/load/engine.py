"""The one loop of a run: an epoll set, its clients, and the meter that reads before and after.

One process does everything. It is single-threaded on purpose: sender and receiver share the clock and the
counts, so the window is exact, and on a machine of two cores the broker has the other one.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from tidegate.load.clients import Access, Client, open_clients
from tidegate.load.errors import ConnectionLost
from tidegate.load.result import Result, percentile
from tidegate.load.settings import Settings
from tidegate.load.streams import SubscriberStream
from tidegate.load.usage import cpu_seconds, steal_seconds, waited_seconds

Progress = Callable[[str], None]

# Enough for every client of the saturating modes, small enough to come back to sending soon.
_EVENTS_PER_TURN = 512


class Engine:
    """A set of open clients; a context manager, so that all sockets are closed whatever happens."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.clients: dict[int, Client] = {}
        self.lost: list[Client] | None = None  # where to note lost connections; None: they end the run
        self._epoll = select.epoll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients.values():
            client.close()
        self._epoll.close()

    def open(self, clients: Iterable[Client], progress: Progress | None = None) -> None:
        """Connect and subscribe `clients`; raises ConnectionRefused or LoadError."""
        new = list(clients)
        report = (
            None if progress is None else lambda count: progress(f"{count} of {len(new)} clients connected")
        )
        try:
            open_clients(self._epoll, self.access, new, progress=report)
        finally:
            self.clients.update((client.fd, client) for client in new)

    def turn(self, timeout: float) -> int:
        """Wait at most `timeout` s (in milliseconds), handle what is ready, return how many clients were."""
        events = self._epoll.poll(timeout, _EVENTS_PER_TURN)
        if events:
            now_ns = time.monotonic_ns()
            clients = self.clients
            for fd, mask in events:
                try:
                    clients[fd].on_event(mask, now_ns)
                except ConnectionLost:
                    if self.lost is None:
                        raise
                    self.lost.append(clients.pop(fd))
        return len(events)

    def turn_until(self, due_ns: int) -> None:
        """Handle what is ready until `due_ns`; epoll counts in milliseconds, select() in microseconds."""
        while True:
            left_ns = due_ns - time.monotonic_ns()
            if left_ns <= 0:
                # A busy machine may never leave time to wait: what is ready is handled all the same.
                self.turn(0)
                return
            if self._epoll.fileno() < 1024:
                select.select([self._epoll], (), (), left_ns / 1e9)
                self.turn(0)
            else:
                self.turn(left_ns / 1e9)


class Meter:
    """Reads CPU time, counts and clock at both ends of the measured window."""

    def __init__(self, settings: Settings, subscribers: list[SubscriberStream]) -> None:
        self._pid = settings.pid
        self._subscribers = subscribers
        self._latencies_ns: list[int] = []
        self._read()

    def _read(self) -> None:
        self._started = time.monotonic()
        self._broker = cpu_seconds(self._pid) if self._pid is not None else None
        self._tool = time.process_time()
        self._steal = steal_seconds()
        self._broker_waited = waited_seconds(self._pid) if self._pid is not None else 0.0
        self._tool_waited = waited_seconds(os.getpid())
        self._received = sum(stream.received for stream in self._subscribers)

    def start(self) -> None:
        """Begin the measured window; stamps are looked at from now on."""
        for stream in self._subscribers:
            stream.latencies_ns = self._latencies_ns
        self._read()

    def stop(self, result: Result) -> None:
        """End the measured window and note what was read in `result`."""
        started, broker, tool, received = self._started, self._broker, self._tool, self._received
        steal, broker_waited, tool_waited = self._steal, self._broker_waited, self._tool_waited
        self._read()
        result.seconds = self._started - started
        result.delivered = self._received - received
        result.messages_per_second = result.delivered / result.seconds
        result.tool_cpu_share = (self._tool - tool) / result.seconds
        result.steal_share = (self._steal - steal) / result.seconds
        result.broker_wait_share = (self._broker_waited - broker_waited) / result.seconds
        result.tool_wait_share = (self._tool_waited - tool_waited) / result.seconds
        if broker is not None and self._broker is not None:
            result.broker_cpu_seconds = self._broker - broker
            result.broker_cpu_share = result.broker_cpu_seconds / result.seconds
            if result.delivered:
                result.broker_cpu_us_per_message = result.broker_cpu_seconds * 1e6 / result.delivered
        for stream in self._subscribers:
            stream.latencies_ns = None
        ordered = sorted(self._latencies_ns)
        result.latency_samples = len(ordered)
        if ordered:
            result.latency_p50_ms = percentile(ordered, 0.50) / 1e6
            result.latency_p99_ms = percentile(ordered, 0.99) / 1e6
