"""What can be wrong with a policy snapshot."""

from __future__ import annotations

from tidegate.errors import TidegateError


class PolicyError(TidegateError):
    """`place` is the snapshot or folder it is about."""

    def __init__(self, place: str, problem: str, hint: str = "") -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem
        self.hint = hint
