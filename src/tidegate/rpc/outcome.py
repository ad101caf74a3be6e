"""What becomes of a call. Every call ends with exactly one of these, whatever happened to anybody on its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a call ended."""

    ACK = "ack"
    """The device did it."""
    NACK = "nack"
    """The device, or its gateway, answered that it did not (hazard 7: a NACK is a reply, and ends the call)."""
    TIMEOUT = "timeout"
    """No answer by the deadline. The device may have done it."""
    REFUSED = "refused"
    """It was never sent to a gateway; `reason` says why."""
    EXPIRED = "expired"
    """Its deadline had passed before it was sent to a gateway."""


class Reason(StrEnum):
    """Why a call was refused, or a device said no. A device type may add words of its own to NACK."""

    UNKNOWN_DEVICE = "unknown device"
    UNKNOWN_METHOD = "unknown method"
    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    NO_ROUTE = "no route"
    BUSY = "gateway busy"
    CANCELLED = "cancelled"
    UNAVAILABLE = "backbone unavailable"
    LEASED = "device in use"
    SUPERSEDED = "superseded"
    DEVICE = "device"


RETRYABLE = frozenset({Reason.NO_ROUTE, Reason.BUSY, Reason.UNAVAILABLE})
"""Refusals that may be different in a moment."""


@dataclass(slots=True, kw_only=True)
class Result:
    """The end of one call. Times in seconds; `gateway` is the one that answered, if one did."""

    outcome: Outcome
    device: str
    reason: str = ""
    gateway: str = ""
    request_id: str = ""
    attempts: int = 1
    seconds: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.ACK

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.device} {self.outcome}{reason}"
