"""Errors of the load tool: facts in fields, what happened in the text, what to do next in `hint`."""

from __future__ import annotations

from tidegate.errors import TidegateError


class LoadError(TidegateError):
    """A run could not be set up, or what was measured cannot be trusted. `hint` is a sentence, or empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SettingsError(LoadError):
    """The asked-for combination of mode and options makes no sense; nothing was started."""


class ConnectionRefused(LoadError):
    """The broker did not take a client or its subscription; `code` is its answer, None if it gave none."""

    def __init__(self, client_id: str, problem: str, *, code: int | None = None) -> None:
        super().__init__(
            f"client {client_id}: {problem}", hint="check host, port, credentials and the broker's limits"
        )
        self.client_id = client_id
        self.code = code


class ConnectionLost(LoadError):
    """The broker ended a connection during the run."""

    def __init__(self, client_id: str) -> None:
        super().__init__(
            f"the broker closed the connection of client {client_id}", hint="look at the broker's log"
        )
        self.client_id = client_id


class UnexpectedPacket(LoadError):
    """The broker sent something that a run does not call for; `first_byte` begins the packet."""

    def __init__(self, problem: str, *, first_byte: int) -> None:
        super().__init__(
            problem, hint="look at the broker's log, and that nobody else uses the run's topic prefix"
        )
        self.first_byte = first_byte
