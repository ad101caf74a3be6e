"""The one error of this room: a configuration that cannot be read at all."""

from tidegate.errors import TidegateError


class MigrationError(TidegateError):
    """Where, why, and what to do next; `line` is 0 when the whole file is at fault."""

    def __init__(self, problem: str, *, file: str, line: int = 0, hint: str = "") -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.hint = hint
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}")
