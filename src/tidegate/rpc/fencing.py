"""Order and exactly-once effect per device.

A request has a token, larger for what was asked for later, and a key, the same for every repetition of it. A device
that remembers the last (token, key) it obeyed can tell something new from a repetition and from something it must not
do any more: an older price never overwrites a newer one (spec 4, e9), and at-least-once becomes once (hazard 12).
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class TokenClock:
    """Tokens of one caller: microseconds of its wall clock, never twice the same, never backwards.

    Tokens of two callers are as well ordered as their clocks agree; `token=` of a call is for those who need more.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self, now: float) -> int:
        self._last = max(self._last + 1, int(now * 1e6))
        return self._last


class Verdict(StrEnum):
    """What a device does with a request."""

    APPLY = "apply"
    DUPLICATE = "duplicate"
    """It was done before: answer again, do nothing."""
    SUPERSEDED = "superseded"
    """Something newer was done: answer NACK."""


class Fence:
    """The last request each device obeyed. One entry a device: bounded by the devices there are."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def judge(self, device: str, token: int, key: str) -> Verdict:
        """Decide, and remember it if it is to be applied. Equal tokens of two callers are ordered by their keys."""
        last = self._last.get(device)
        if last is not None and (token, key) <= last:
            return Verdict.DUPLICATE if (token, key) == last else Verdict.SUPERSEDED
        self._last[device] = (token, key)
        return Verdict.APPLY

    def restore(self, device: str, token: int, key: str) -> None:
        """What the device says it obeyed last, when a gateway starts."""
        self.judge(device, token, key)


class Recent(Generic[T]):
    """The last `size` keys with what was answered to each; the oldest is forgotten for a new one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[str, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def get(self, key: str) -> T | None:
        return self._known.get(key)

    def put(self, key: str, value: T) -> None:
        self._known[key] = value
        self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
