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

    def __init__(self, lake: str, table: str) -> None:
        super().__init__(
            f"{lake}: there are no rows of {table} in the time asked for",
            "record some (docs/lake.md), or make some: tidegate lake generate --rows 1000000 DIR",
        )
        self.lake = lake
        self.table = table


class UnknownJob(PipelineError):
    """A job name that is not in the registry."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"unknown job {name!r}", f"known: {', '.join(known)}")
        self.name = name
