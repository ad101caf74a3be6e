"""A TOML file in the making: only what differs from the defaults, each value with the line it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Value = bool | int | float | str | Path | tuple[str, ...]


@dataclass(slots=True)
class Entry:
    """A value, and where it came from."""

    value: Value
    origin: str = ""


@dataclass(slots=True)
class Document:
    """Tables by name (empty for the top), and listeners in their order."""

    tables: dict[str, dict[str, Entry]] = field(default_factory=dict)
    listeners: list[dict[str, Entry]] = field(default_factory=list)
    heading: list[str] = field(default_factory=list)

    def put(self, key: str, value: Value, origin: str = "") -> None:
        table, _, name = key.rpartition(".")
        self.tables.setdefault(table, {})[name] = Entry(value, origin)

    def get(self, key: str) -> Value | None:
        table, _, name = key.rpartition(".")
        entry = self.tables.get(table, {}).get(name)
        return None if entry is None else entry.value

    def render(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from (f"# {line}".rstrip() for line in self.heading)
        yield from _entries(self.tables.get("", {}))
        for listener in self.listeners:
            yield from ("", "[[listeners]]", *_entries(listener))
        for name, entries in self.tables.items():
            if name:
                yield from ("", f"[{name}]", *_entries(entries))


def _entries(entries: dict[str, Entry]) -> Iterator[str]:
    for name, entry in entries.items():
        line = f"{name} = {_literal(entry.value)}"
        yield f"{line}  # {entry.origin}" if entry.origin else line


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    # JSON strings are TOML strings, but for DEL, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
