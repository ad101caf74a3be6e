"""Slows down whoever fails to log in again and again from one address.

Theory of operation. Each address has a score: a failure adds one, time takes away `failures` per `window`, a
success takes away a little. Above `failures` answers are delayed, twice as long with each further failure, up to
`max_delay`; from `refuse_after` on the address is refused without a look at what it offers. As the score only
ever decays from there (refused attempts do not count), an address that many share is never locked out for good.

Rules: no clock in here, `now` is passed in; the table is bounded and forgets the address seen longest ago.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass

FIRST_DELAY = 0.25
# A success lowers the score, but by less than a failure raises it: an attacker who owns one account must not be
# able to pay for each guess with a login of its own.
SUCCESS_CREDIT = 0.5
CAPACITY = 10_000  # addresses remembered; about 2 MB


@dataclass(slots=True)
class _Entry:
    score: float
    at: float


class LoginGuard:
    """Failed logins by address. `failures` 0 switches it off."""

    __slots__ = (
        "_capacity", "_entries", "delayed", "failed", "failures", "max_delay", "refuse_after", "refused", "succeeded",
        "window",
    )  # fmt: skip

    def __init__(
        self,
        *,
        failures: int = 10,
        window: float = 60.0,
        max_delay: float = 4.0,
        refuse_after: int = 100,
        capacity: int = CAPACITY,
    ) -> None:
        self.failures = failures
        self.window = window
        self.max_delay = max_delay
        self.refuse_after = max(refuse_after, failures + 1)
        self._capacity = capacity
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.failed = self.succeeded = self.delayed = self.refused = 0

    def adopt(self, other: LoginGuard) -> None:
        """Go on with what another guard has counted, after settings changed."""
        self._entries = other._entries
        self.failed, self.succeeded = other.failed, other.succeeded
        self.delayed, self.refused = other.delayed, other.refused

    def check(self, address: str, now: float) -> float | None:
        """Seconds to wait before an attempt is looked at; None: refuse it."""
        count = self._count(address, now)
        if not self.failures or count < self.failures:
            return 0.0
        if count >= self.refuse_after:
            self.refused += 1
            return None
        self.delayed += 1
        # Bounded here, as 2.0**1024 would overflow for a generous `refuse_after`.
        return min(self.max_delay, FIRST_DELAY * math.exp2(min(count - self.failures, 32)))

    def is_refused(self, address: str, now: float) -> bool:
        """Whether failures since `check` have brought the address over the limit."""
        return bool(self.failures) and self._count(address, now) >= self.refuse_after

    def on_failure(self, address: str, now: float) -> None:
        self.failed += 1
        if self.failures:
            self._set(address, self._score(address, now) + 1.0, now)

    def on_success(self, address: str, now: float) -> None:
        self.succeeded += 1
        if address in self._entries:
            self._set(address, self._score(address, now) - SUCCESS_CREDIT, now)

    def _score(self, address: str, now: float) -> float:
        entry = self._entries.get(address)
        if entry is None:
            return 0.0
        return max(0.0, entry.score - (now - entry.at) * self.failures / self.window)

    def _count(self, address: str, now: float) -> int:
        """Failures not yet forgotten: one counts until the last bit of it has decayed."""
        return math.ceil(self._score(address, now))

    def _set(self, address: str, score: float, now: float) -> None:
        entries = self._entries
        if score <= 0:
            entries.pop(address, None)
            return
        entries[address] = _Entry(score, now)
        entries.move_to_end(address)
        if len(entries) > self._capacity:
            entries.popitem(last=False)

    def statistics(self) -> dict[str, int]:
        return {
            "logins_succeeded": self.succeeded,
            "logins_failed": self.failed,
            "logins_delayed": self.delayed,
            "logins_refused": self.refused,
            "addresses": len(self._entries),
        }


def address_of(peer: str) -> str:
    """The address by which a peer (`host:port`) is counted.

    An IPv6 host owns at least a /64, so counting single addresses there would count nothing.
    """
    host = peer.rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return peer  # a unix socket
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
