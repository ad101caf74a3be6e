"""One deadline for a call, carried end to end (hazard 6).

It is a moment of the wall clock in seconds since 1970, so every program on the way reads the same one; machines whose
clocks differ by more than calls take need a time service. What MQTT and Redis want to know are durations made of it.
"""

from __future__ import annotations

from math import ceil
from typing import Final

GRACE: Final = 10.0
"""Seconds a return address outlives the deadline, so that a late reply is still told from a forged one."""

LONGEST: Final = 86_400.0
"""A day: what asks for more has mistaken a duration for a moment, or milliseconds for seconds."""


def message_expiry(deadline: float, now: float) -> int:
    """The Message Expiry Interval for it: whole seconds, never 0, which would mean at once."""
    return min(max(1, ceil(deadline - now)), 0xFFFF_FFFF)


def time_to_live(deadline: float, now: float) -> float:
    """Seconds a return address is kept."""
    return max(0.0, deadline - now) + GRACE
