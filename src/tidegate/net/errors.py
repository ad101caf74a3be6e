"""What can go wrong between a socket and the protocol above it.

Every error keeps its facts in fields (tests and callers look at those), says in its text what happened to
what, and carries a `hint` that tells the reader what to do next.
"""

from __future__ import annotations

from tidegate.errors import TidegateError


class NetError(TidegateError):
    """Base of this room's errors. `hint` is one sentence to act on, or empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class AddressError(NetError):
    """An address or URL that cannot be understood. `address` is the text as it was given."""

    def __init__(self, address: str, problem: str, *, hint: str = "") -> None:
        super().__init__(f"address {address!r}: {problem}", hint=hint)
        self.address = address
        self.problem = problem


class ListenError(NetError):
    """A listener that could not be opened. `address` is what it should have bound."""

    def __init__(self, address: str, problem: str, *, hint: str = "") -> None:
        super().__init__(f"cannot listen on {address}: {problem}", hint=hint)
        self.address = address
        self.problem = problem


class AddressInUse(ListenError):
    """Somebody else already listens on this address."""


class TLSConfigError(NetError):
    """A TLS setting that cannot work. `file` is the file at fault, or None when it is not a file."""

    def __init__(self, problem: str, *, file: str | None = None, hint: str = "") -> None:
        super().__init__(f"TLS: {problem}", hint=hint)
        self.file = file
        self.problem = problem


class DialError(NetError):
    """A connection that could not be opened. `timed_out` tells a silent peer from one that refused."""

    def __init__(self, address: str, problem: str, *, timed_out: bool = False, hint: str = "") -> None:
        super().__init__(f"cannot connect to {address}: {problem}", hint=hint)
        self.address = address
        self.problem = problem
        self.timed_out = timed_out


class WebSocketRefused(DialError):
    """The server answered the upgrade request, but not with a usable WebSocket.

    `status` is the HTTP status, or None when the answer was not HTTP at all.
    """

    def __init__(self, address: str, problem: str, *, status: int | None, hint: str = "") -> None:
        super().__init__(address, problem, hint=hint)
        self.status = status
