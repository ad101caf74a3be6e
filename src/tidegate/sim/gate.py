"""The node's ingress as far as back-off is concerned: reads a client, or does not, as the policy says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.flow.backoff import REFUSE, BackoffPolicy, Mode, Publisher
from tidegate.sim.clock import Simulation


@dataclass(slots=True, kw_only=True)
class Arrival:
    """What became of one message. Times in seconds; `t_forwarded` is the planned time, `hold` what was decided."""

    number: int
    size_bytes: int
    t_sent: float
    t_read: float = 0.0
    t_forwarded: float = 0.0
    hold: float = 0.0
    is_marked: bool = False
    is_dropped: bool = False


class Gate:
    """One policy for all clients; `open` gives each its inlet."""

    __slots__ = ("bytes_forwarded", "bytes_read", "policy", "sim")

    def __init__(self, sim: Simulation, policy: BackoffPolicy) -> None:
        self.sim = sim
        self.policy = policy
        self.bytes_read = 0
        self.bytes_forwarded = 0

    def open(self, publisher: Publisher, accept: Callable[[Arrival], None]) -> Inlet:
        """`accept` is called when the client may go on: at once, or after the hold in mode `backpressure`."""
        return Inlet(self, publisher, accept)


class Inlet:
    """One client's way in. Messages that come while it is not read wait outside, in order, and cost no bytes yet."""

    __slots__ = ("_accept", "_gate", "_is_read", "_last_forwarded", "_outside", "publisher")

    def __init__(self, gate: Gate, publisher: Publisher, accept: Callable[[Arrival], None]) -> None:
        self._gate = gate
        self._accept = accept
        self._is_read = True
        self._outside: deque[Arrival] = deque()
        self._last_forwarded = 0.0
        self.publisher = publisher

    def send(self, arrival: Arrival) -> None:
        self._outside.append(arrival)
        self._read_what_waits()

    def _read_what_waits(self) -> None:
        while self._is_read and self._outside:
            self._read(self._outside.popleft())

    def _read(self, arrival: Arrival) -> None:
        gate = self._gate
        now = gate.sim.now
        mode = gate.policy.mode
        answer = self.publisher.observe(now, 1, arrival.size_bytes)
        gate.bytes_read += arrival.size_bytes
        arrival.t_read = arrival.t_forwarded = now
        arrival.is_marked = self.publisher.is_suspicious or answer != 0.0
        if answer == REFUSE:
            arrival.is_dropped = True
        else:
            arrival.hold = answer
            gate.bytes_forwarded += arrival.size_bytes
            # Later ones of this client wait behind a held one [MQTT5-4.6.0-5].
            arrival.t_forwarded = self._last_forwarded = max(self._last_forwarded, now + answer)
        if mode is Mode.BACKPRESSURE and arrival.hold > 0.0:
            self._is_read = False
            gate.sim.after(arrival.hold, lambda: self._read_again(arrival))
        else:
            self._accept(arrival)

    def _read_again(self, arrival: Arrival) -> None:
        self._is_read = True
        self._accept(arrival)
        self._read_what_waits()
