"""What an edge can carry where nobody said so: measured, and only believed where there is evidence.

**Uplink.** While sockets have room nothing is known, and nothing is looked at but whether one is full. Clients whose
kernel buffers have bytes to send, though they themselves have room for more, are kept back by the network. When such
clients, at least two, get most of what is sent, `LOOKS` looks in a row, the least that went out in one of them is what
the uplink carries; of several such values within `MEMORY` looks the largest. A single slow path is no evidence. After
`MEMORY` looks without any the value is forgotten.

**Downlink.** The head sees the same of its one connection to the edge, which is that path and no other.

**Matching.** The share of a processor that the loop used, of what it could have had: what others took while it was
ready to run was not to be had. The rate of matching is that of the messages over this share, told once the loop is
`BUSY`, since the cost of a message is only then more than noise.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.broker.tcp_info import TcpInfo, tcp_info

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core

LOOKS: Final = 3
MEMORY: Final = 300
SAMPLED: Final = 256  # clients that are looked at
MOST: Final = 0.5
BITS: Final = 8
BUSY: Final = 0.5
WINDOW: Final = 3.0  # seconds
SCHEDULER: Final = Path("/proc/thread-self/schedstat")


class Sustained:
    """Rates of looks in a row with evidence; `capacity` is what they say together, 0 if nothing."""

    def __init__(self) -> None:
        self.capacity = 0.0
        self._row: deque[float] = deque(maxlen=LOOKS)
        self._found: deque[float] = deque(maxlen=MEMORY)

    def add(self, rate: float | None) -> None:
        """Of one look; None: no evidence."""
        if rate is None:
            self._row.clear()
        else:
            self._row.append(rate)
        self._found.append(min(self._row) if len(self._row) == LOOKS else 0.0)
        self.capacity = max(self._found)


def is_kept_back(now: TcpInfo, before: TcpInfo, interval: float) -> bool:
    """Whether a connection has more to send than the network takes, and its other end has room."""
    return bool(now.unsent) and now.held - before.held < interval * MOST


class UplinkProbe:
    """`capacity` in bit/s; 0 while it is not known."""

    def __init__(self) -> None:
        self._seen: dict[Connection, TcpInfo] = {}
        self._sent = 0
        self._rates = Sustained()

    @property
    def capacity(self) -> float:
        return self._rates.capacity

    def look(self, core: Core, interval: float) -> None:
        sent, self._sent = core.counters.bytes_sent - self._sent, core.counters.bytes_sent
        self._rates.add(self._rate(core, sent, interval))

    def _rate(self, core: Core, sent: int, interval: float) -> float | None:
        """Bits a second that went out, if it is the network that most of them waited for."""
        before, self._seen = self._seen, {}
        if not core.blocked:
            return None
        total = kept_back = clients = 0
        everyone = (conn for conn in core.connections if not conn.listener.is_link)
        for conn in islice(everyone, SAMPLED):
            info = tcp_info(conn.transport)
            if info is None:
                continue
            self._seen[conn] = info
            old = before.get(conn)
            if old is None:
                continue
            total += info.acked - old.acked
            if is_kept_back(info, old, interval):
                kept_back += info.acked - old.acked
                clients += 1
        if clients < 2 or kept_back <= total * MOST:
            return None
        if len(self._seen) == SAMPLED:
            total = sent  # there are more, and all count
        return total * BITS / interval


class MatchingProbe:
    """`share` of its processor that the loop used at least, in every look of the last `window` seconds; `rate` in
    messages a second.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self.size = 1.0  # processors that the loop may use
        self.window = WINDOW
        self.rate = inf
        self._shares: deque[tuple[float, float]] = deque()  # when a look began, and its share
        self._ran, self._waited = _times()
        self._at = time.monotonic()

    def look(self) -> None:
        """Once an interval, on the loop's thread."""
        ran, waited = _times()
        now = time.monotonic()
        elapsed = now - self._at
        if elapsed <= 0.0:
            return
        share = min(1.0, used_share(ran - self._ran, waited - self._waited, elapsed) / self.size)
        self._shares.append((self._at, share))
        while len(self._shares) > 1 and self._shares[1][0] <= now - self.window:
            self._shares.popleft()
        is_whole = self._shares[0][0] <= now - self.window
        self.share = min(each for _, each in self._shares) if is_whole else 0.0
        self._ran, self._waited, self._at = ran, waited, now

    def learn(self, incoming: float) -> float:
        """The rate, of which `incoming` messages a second are `share`; inf while nothing is known."""
        if incoming > 0.0 and self.share >= BUSY:
            self.rate = incoming / self.share
        elif self.rate < inf and self.share > 0.0:
            self.rate = max(self.rate, incoming / self.share)
        return self.rate


def used_share(ran: float, waited: float, elapsed: float) -> float:
    """Of the processor time that was to be had, 0 to 1."""
    return min(1.0, ran / max(ran, elapsed - waited, 1e-9))


def _times() -> tuple[float, float]:
    """Seconds that this thread ran, and that it was ready and had to wait."""
    try:
        ran, waited, _ = SCHEDULER.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return time.thread_time(), 0.0
    if not int(ran):
        return time.thread_time(), 0.0  # a kernel that does not count
    return int(ran) / 1e9, int(waited) / 1e9
