"""What an experiment is, what it is given when it runs, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure as Canvas

T = TypeVar("T")


class Part(StrEnum):
    """Which half of an experiment to run."""

    SIM = "sim"  # on the virtual clock
    REAL = "real"  # brokers in their own processes, over sockets


class Progress(Protocol):
    """Told how far a run is; the command line draws a bar of it."""

    def start(self, text: str, steps: int) -> None:
        """A new phase of so many steps."""

    def step(self, text: str = "") -> None:
        """One of them is done."""


class Silence:
    """Progress that nobody watches."""

    def start(self, text: str, steps: int) -> None:
        """Nothing to draw."""

    def step(self, text: str = "") -> None:
        """Nothing to draw."""


@dataclass(slots=True, kw_only=True)
class Context:
    """How to run: `seeds` 0 means the experiment's own number, `only` None both parts."""

    is_quick: bool = False
    seeds: int = 0
    only: Part | None = None
    progress: Progress = field(default_factory=Silence)
    record: Callable[[DataclassInstance], None] | None = None  # where each message is noted, if anywhere

    def wants(self, part: Part) -> bool:
        return self.only is None or self.only is part

    def number_of_seeds(self, full: int, quick: int) -> int:
        return self.seeds or (quick if self.is_quick else full)

    def follow(self, text: str, items: Iterable[T]) -> Iterator[T]:
        """The same items, with a step of progress after each."""
        known = list(items)
        self.progress.start(text, len(known))
        for item in known:
            yield item
            self.progress.step()


class Verdict(StrEnum):
    """How a claim fared."""

    HOLDS = "holds"
    FAILS = "fails"
    DIFFERS = "differs"  # from the paper, and the text says why
    NOT_JUDGED = "not judged"  # the measurement cannot tell


@dataclass(slots=True, kw_only=True)
class Claim:
    """One sentence that can be wrong, the paper's number and ours.

    `short` is its row in the table of all papers, if it has one; the project's README shows those that are headlines.
    """

    text: str
    paper: str
    ours: str
    verdict: Verdict
    note: str = ""
    short: str = ""
    is_headline: bool = False


@dataclass(slots=True, kw_only=True)
class Table:
    """Cells are text: units and intervals are in them."""

    title: str
    head: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Figure:
    """`draw` fills an empty canvas; `name` becomes part of a file name, `text` stands in where it cannot be seen."""

    name: str
    text: str
    draw: Callable[[Canvas], None]


@dataclass(slots=True, kw_only=True)
class Presentation:
    """What a page says about one experiment; claims come first."""

    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, frozen=True)
class Experiment:
    """`run` gives plain data: `parameters`, `seeds` (the values of every one) and `summary`; `present` reads it back.

    `present` must bear data in which a part is missing: it was not run, then.
    """

    name: str
    title: str
    question: str
    run: Callable[[Context], dict[str, Any]]
    present: Callable[[dict[str, Any]], Presentation]
    parts: tuple[Part, ...] = (Part.SIM, Part.REAL)


@dataclass(slots=True, kw_only=True, frozen=True)
class Paper:
    """A folder of the lab."""

    number: int
    name: str
    title: str
    source: str
    experiments: tuple[Experiment, ...]
