"""What can go wrong with the console, in words for who starts or uses it."""

from tidegate.errors import TidegateError


class ConsoleError(TidegateError):
    """The console cannot be started as it was asked to."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class ActionRefused(ConsoleError):
    """An action was not carried out; the text says why, for who asked for it."""


class RoomMissing(ConsoleError):
    """The page is about a part of Tidegate that is not installed or not named; the hint says how to have it."""
