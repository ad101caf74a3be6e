"""What can go wrong with a request to a space: one class, one closed list of kinds, and a hint to act on."""

from __future__ import annotations

from enum import StrEnum

from tidegate.errors import TidegateError
from tidegate.flow.timeout import UNKNOWN, Announcement


class Fault(StrEnum):
    """Whose fault it is and what kind; part of the protocol, so names never change their meaning."""

    MALFORMED = "malformed"  # the text is not RDF, not SPARQL, or not a request
    UNSUPPORTED = "unsupported"  # it is, but a space does not offer it
    UNKNOWN_SPACE = "unknown-space"
    UNKNOWN_WATCH = "unknown-watch"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too-large"
    TIMEOUT = "timeout"
    BUSY = "busy"  # refused for now; `retry_after` says for how long
    CONTENT_TYPE = "content-type"
    INTERNAL = "internal"  # the broker's own fault; its log knows more


class SpaceError(TidegateError):
    """A request that was not served; the store is as it was. `retry_after` in seconds, 0 if that would not help."""

    def __init__(self, fault: Fault, text: str, *, hint: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.fault = fault
        self.hint = hint
        self.retry_after = retry_after
        self.load: Announcement = UNKNOWN
        """What the broker announced with its refusal, on the client's side."""


def malformed(text: str, hint: str = "") -> SpaceError:
    return SpaceError(Fault.MALFORMED, " ".join(text.split())[:500], hint=hint)


def unsupported(text: str, hint: str = "") -> SpaceError:
    return SpaceError(Fault.UNSUPPORTED, text, hint=hint)
