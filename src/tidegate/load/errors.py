"""Errors of the load tool: each says what went wrong, with which client, and what to try next."""

from __future__ import annotations

from tidegate.errors import TidegateError


class LoadError(TidegateError):
    """A run could not be set up, or what was measured cannot be trusted."""


class SettingsError(LoadError):
    """The asked-for combination of mode and options makes no sense; nothing was started."""


class ConnectionRefused(LoadError):
    """The broker did not take a client or its subscription; `code` is its answer, None if it never answered."""

    def __init__(self, message: str, *, client_id: str, code: int | None) -> None:
        super().__init__(message)
        self.client_id = client_id
        self.code = code


class ConnectionLost(LoadError):
    """The broker ended a connection during the run."""

    def __init__(self, message: str, *, client_id: str) -> None:
        super().__init__(message)
        self.client_id = client_id


class UnexpectedPacket(LoadError):
    """The broker sent something that a run does not call for; `first_byte` begins the packet."""

    def __init__(self, message: str, *, first_byte: int) -> None:
        super().__init__(message)
        self.first_byte = first_byte
