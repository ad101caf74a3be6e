"""What can be wrong with a run of the pipeline. Every error carries a hint that can be acted on."""

from __future__ import annotations

from tidegate.errors import TidegateError


class PipelineError(TidegateError):
    """`problem` says what and where; `hint` what to do next."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class NothingToRead(PipelineError):
    """The lake has no file of a table that a job cannot do without."""

    def __init__(self, lake: str, table: str, *, is_bounded: bool = False) -> None:
        time = " in the time asked for" if is_bounded else ""
        super().__init__(
            f"{lake}: there are no rows of {table}{time}",
            "files are complete after half a minute (docs/lake.md); "
            "or make some: tidegate lake generate --rows 1000000 DIR",
        )
        self.lake = lake
        self.table = table


class UnknownJob(PipelineError):
    """A job name that is not in the registry."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"unknown job {name!r}", f"known: {', '.join(known)}")
        self.name = name


def told(error: Exception) -> str:
    """What Java or Spark says is wrong, in one line."""
    lines = [each.strip(": ") for each in str(error).splitlines() if each.strip(": ")]
    return next(
        (each for each in lines if not each.startswith("An error occurred while calling")), "unknown"
    )[:300]
