"""Which reply belongs to which call: request-scoped (hazard 1), once (hazard 2), and not to be forged.

A correlation is `caller.number.tag`. The caller's part is its return address, so that a back router needs no memory to
find it (spec 4, e3); the tag is a keyed hash of the rest. Whoever does not know the secret cannot make one, and the
number starts at random, so that none can be guessed from another process's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2s
from heapq import heapify, heappop, heappush
from hmac import compare_digest
from typing import Generic, TypeVar

from tidegate.rpc.fencing import Recent

T = TypeVar("T")

_TAG_BYTES = 6
_SPARE = 1000  # deadlines of calls that have ended, kept besides as many as are open
_REMEMBERED = 10_000
"""Finished calls that a reply may still come for; older ones are counted as unknown."""


class Signer:
    """Makes and checks tags. An empty secret still finds what was garbled, not what was forged."""

    def __init__(self, secret: bytes = b"") -> None:
        self._base = blake2s(key=secret[:32], digest_size=_TAG_BYTES)

    def sign(self, caller: str, number: int) -> str:
        text = f"{caller}.{number:x}"
        return f"{text}.{self._tag(text)}"

    def caller(self, correlation: str) -> str | None:
        """Whose it is; None if it is not genuine."""
        text, dot, tag = correlation.rpartition(".")
        if not dot or not text.isascii() or not tag.isascii() or not compare_digest(self._tag(text), tag):
            return None
        return text.partition(".")[0]

    def _tag(self, text: str) -> str:
        digest = self._base.copy()
        digest.update(text.encode())
        return digest.hexdigest()


@dataclass(slots=True, eq=False)
class Open(Generic[T]):
    """A call that waits. `what` is the caller's own."""

    correlation: str
    device: str
    deadline: float
    what: T


class Calls(Generic[T]):
    """The open calls of one caller. Counts what came for none: `late`, `duplicate`, `unknown`, `mismatched`."""

    def __init__(self, caller: str, signer: Signer, first: int) -> None:
        self.caller = caller
        self._signer = signer
        self._next = first
        self._open: dict[str, Open[T]] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._finished: Recent[bool] = Recent(_REMEMBERED)
        self.late = 0
        """Replies to calls that ended without one."""
        self.duplicate = 0
        """Second replies to calls that had one."""
        self.unknown = 0
        """Replies to calls that never were, or were long ago."""
        self.mismatched = 0
        """Replies in the name of another device than the one that was called."""

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, correlation: str) -> bool:
        return correlation in self._open

    def open(self, device: str, deadline: float, what: T) -> Open[T]:
        self._next += 1
        call = Open(self._signer.sign(self.caller, self._next), device, deadline, what)
        self._open[call.correlation] = call
        heappush(self._deadlines, (deadline, call.correlation))
        if len(self._deadlines) > 2 * len(self._open) + _SPARE:
            # Most calls end long before their deadlines.
            self._deadlines = [(each.deadline, name) for name, each in self._open.items()]
            heapify(self._deadlines)
        return call

    def match(self, correlation: str, device: str) -> Open[T] | None:
        """The call a reply ends, or None, counted."""
        call = self._open.get(correlation)
        if call is None:
            was_answered = self._finished.get(correlation)
            if was_answered is None:
                self.unknown += 1
            elif was_answered:
                self.duplicate += 1
            else:
                self.late += 1
            return None
        if device and device != call.device:
            self.mismatched += 1
            return None
        del self._open[correlation]
        self._finished.put(correlation, True)
        return call

    def close(self, correlation: str) -> None:
        """Nobody waits any more."""
        if self._open.pop(correlation, None) is not None:
            self._finished.put(correlation, False)

    def expire(self, now: float) -> list[Open[T]]:
        """Those whose deadline has come, closed."""
        ended: list[Open[T]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            call = self._open.get(heappop(self._deadlines)[1])
            if call is not None:
                self.close(call.correlation)
                ended.append(call)
        return ended

    def next_deadline(self) -> float | None:
        """When to call `expire` next; calls that have ended are passed over."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def each(self, act: Callable[[Open[T]], None]) -> None:
        """For every open call."""
        for call in list(self._open.values()):
            act(call)
