"""Errors of the durable store."""

from tidegate.errors import TidegateError


class StoreError(TidegateError):
    """The store cannot be opened or used. `path` is its file."""

    def __init__(self, path: object, problem: str, hint: str = "") -> None:
        super().__init__(f"store {path}: {problem}")
        self.path = path
        self.hint = hint
