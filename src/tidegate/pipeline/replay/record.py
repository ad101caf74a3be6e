"""What a replay finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Difference:
    """`name` is the column that differs."""

    seq: int
    kind: str
    name: str
    client_id: str | None
    recorded: str
    computed: str


@dataclass(slots=True)
class Findings:
    """Of one run. `notes`: why some events could not be compared."""

    events: int = 0
    compared: int = 0
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def compare(self, row: Row, name: str, computed: object) -> None:
        """Exactly equal or not: the policies are pure, so there is no almost."""
        self.compared += 1
        recorded = row[name]
        if recorded != computed:
            self.differences.append(
                Difference(
                    seq=row["seq"],
                    kind=row["kind"],
                    name=name,
                    client_id=row["client_id"],
                    recorded=repr(recorded),
                    computed=repr(computed),
                )
            )

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
