"""The event record: one JSON object a line for every message of a run, with the fields of the paper's own record."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class EventFile:
    """Writes to a temporary name and renames when all is there, so that a reader never sees half a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f"_{path.name}")
        self.count = 0

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._temporary.open("w", encoding="utf-8")
        return self

    def write(self, event: DataclassInstance) -> None:
        # JSON knows no infinity, which is the rate of two messages at one instant.
        fields = {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in asdict(event).items()
        }
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None:
            self._temporary.rename(self.path)
        else:
            self._temporary.unlink(missing_ok=True)
