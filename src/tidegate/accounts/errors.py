"""Errors of the accounts room. None of them ever carries a password, a hash, a key or a token."""

from tidegate.errors import TidegateError


class AccountsError(TidegateError):
    """A file or setting about accounts that cannot be used: where, why, and what to do next.

    `line` is 0 when the whole file is at fault. The text of a line is never quoted: it may hold a hash.
    """

    def __init__(self, problem: str, *, file: str = "", line: int = 0, hint: str = "") -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.hint = hint
        where = f"{file}:{line}: " if line else f"{file}: " if file else ""
        super().__init__(f"{where}{problem}")


class ScramError(TidegateError):
    """A SCRAM message that is wrong in form or in proof. Peers are told nothing but that it failed."""
