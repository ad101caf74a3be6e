"""What a conversion says about the lines it read: nothing is left out silently."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a line fared, the worst first."""

    LOST = "not converted"
    DIFFERS = "differs"
    NOT_NEEDED = "not needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One line of the report. `place` is file:line, `option` the line's first word; both may be empty."""

    kind: Kind
    text: str
    place: str = ""
    option: str = ""
    hint: str = ""

    def __str__(self) -> str:
        where = " ".join(part for part in (self.place and f"{self.place}:", self.option) if part)
        line = f"{where}: {self.kind}: {self.text}" if where else f"{self.kind}: {self.text}"
        return f"{line}\n  hint: {self.hint}" if self.hint else line
