"""What can be wrong with the backbone itself; what can become of a call is an `Outcome`, not an error."""

from __future__ import annotations

from tidegate.errors import TidegateError


class RpcError(TidegateError):
    """Base of this room's errors; `hint` is one sentence to act on, or nothing."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SchemaError(RpcError):
    """A declaration of a device type makes no sense."""


class Unavailable(RpcError):
    """The queue or the store cannot be reached, or nobody serves the queue. What was asked for was not done."""


class Impossible(Unavailable):
    """It will not be done however often it is tried: too large, or not allowed."""


class Full(RpcError):
    """As many calls are open as may be, and the caller did not want to wait."""


class Malformed(RpcError):
    """A message of the backbone that is none."""


class Refusal(RpcError):
    """A request that cannot be sent; `reason` is what the caller's outcome says."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
