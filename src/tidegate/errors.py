"""The root of every error Tidegate raises on purpose; each room derives its own in its own `errors.py`."""


class TidegateError(Exception):
    """Base of all errors that are part of Tidegate's contract."""

    _hint = ""

    @property
    def hint(self) -> str:
        """One sentence to act on, or empty. Tracebacks show it below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        notes: list[str] = getattr(self, "__notes__", [])
        if self._hint:
            notes.remove(f"hint: {self._hint}")
        if hint:
            self.add_note(f"hint: {hint}")
        self._hint = hint
