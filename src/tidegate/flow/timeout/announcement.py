"""What a broker tells of its load with every answer, and how it is written: `proc=0.012;queue=0.05;rate=0.12`.

One short text serves as a User Property of MQTT 5 and as a header of HTTP. It costs no message of its own; unknown
names are ignored, so that it can grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Final

NAME: Final = "tide-load"
"""User Property on responses and notifications; the header is `Tide-Load`."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Announcement:
    """0 stands for unknown. Times in seconds, rates in requests per second.

    `processing`: mean time for one request (T_proc). `queueing`: what a request that came now would wait (T_queue).
    `limit`: the longest queueing in which the broker still works stably. `capacity`: requests per second it can
    serve. `watchers`: clients that get the same notifications. `rate`: the pace it wishes from this client.
    `retry_after`: when a refused request may come again.
    """

    processing: float = 0.0
    queueing: float = 0.0
    limit: float = 0.0
    capacity: float = 0.0
    watchers: float = 0.0
    rate: float = 0.0
    retry_after: float = 0.0

    @property
    def spread(self) -> float:
        """w: seconds in which all watchers can be served one after another; 0 if that is unknown."""
        return self.watchers / self.capacity if self.capacity > 0.0 else 0.0

    def encode(self) -> str:
        return _encode(self)


_NAMES: Final = {
    "proc": "processing",
    "queue": "queueing",
    "limit": "limit",
    "cap": "capacity",
    "watch": "watchers",
    "rate": "rate",
    "retry": "retry_after",
}

UNKNOWN: Final = Announcement()


@lru_cache(maxsize=256)
def _encode(load: Announcement) -> str:
    """A busy broker says the same to many."""
    parts = ((short, getattr(load, name)) for short, name in _NAMES.items())
    return ";".join(f"{short}={value:.4g}" for short, value in parts if value > 0.0)


def parse_announcement(text: str) -> Announcement:
    """Reads what it understands: a broker that announces nonsense announces nothing."""
    values: dict[str, float] = {}
    for part in text.split(";"):
        short, _, number = part.partition("=")
        name = _NAMES.get(short.strip())
        if name is None:
            continue
        try:
            value = float(number)
        except ValueError:
            continue
        if isfinite(value) and value >= 0.0:
            values[name] = value
    return Announcement(**values)
