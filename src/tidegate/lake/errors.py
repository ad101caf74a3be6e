"""What can be wrong with a lake. Every error carries a hint that can be acted on."""

from __future__ import annotations

from tidegate.errors import TidegateError


class LakeError(TidegateError):
    """`place` is the folder, file or address it is about."""

    def __init__(self, place: str, problem: str, hint: str = "") -> None:
        super().__init__(f"{place}: {problem}" if place else problem)
        self.place = place
        self.problem = problem
        self.hint = hint


class NotInstalled(LakeError):
    """pyarrow is an extra."""

    def __init__(self) -> None:
        super().__init__("", "the lake needs pyarrow, which is not installed", "pip install 'tidegate[lake]'")


def require_pyarrow() -> None:
    """Raises NotInstalled."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise NotInstalled from None
