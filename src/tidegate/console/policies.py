"""Policy snapshots for the page: which there are, what is current, what changed; and making another one current.

All of it reads or writes the disk, so it runs in a thread. The work is done by the policy room; without it, or without
a folder, `RoomMissing` says what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tidegate.console.errors import ActionRefused, RoomMissing
from tidegate.console.rooms import find_room, how_to_install
from tidegate.errors import TidegateError

ROWS: Final = 100  # of each kind of difference
FACTOR: Final = 1.5  # a rate that changed by less is not worth a row
VALUES: Final = (("baselines", "rate"), ("members", "service"))


def _store(folder: Path | None) -> Any:
    room = find_room("policy")
    if room is None or find_room("policy.snapshot") is None:
        raise RoomMissing("Support for policy snapshots is not installed.", how_to_install("lake"))
    if folder is None:
        raise RoomMissing(
            "No folder of policy snapshots was named.",
            "tidegate pipeline run --lake DIR writes one; then: tidegate console --policy DIR/_policy",
        )
    if not folder.is_dir():
        raise RoomMissing(f"There is no folder {folder}.", "tidegate pipeline run --lake DIR writes it")
    return room.PolicyStore(folder)


def describe(folder: Path | None) -> dict[str, Any]:
    """All versions, the latest first."""
    store = _store(folder)
    current = store.current()
    versions = []
    for name in reversed(store.versions()):
        try:
            manifest = store.manifest(name)
        except TidegateError as error:
            versions.append({"version": name, "problem": str(error)})
            continue
        versions.append(
            {
                "version": name,
                "created": manifest.created,
                "input_from": manifest.input_from,
                "input_to": manifest.input_to,
                "notes": manifest.notes,
                "tables": {table: entry.rows for table, entry in manifest.tables.items()},
            }
        )
    return {"folder": str(folder), "current": current, "versions": versions, "history": store.history()[-20:]}


def compare(folder: Path | None, old: str, new: str) -> dict[str, Any]:
    """What `new` says and `old` does not."""
    store = _store(folder)
    before, after = store.manifest(old), store.manifest(new)
    comparison = find_room("policy.compare")
    found: dict[str, Any] = {}
    for table, value in VALUES:
        if comparison is not None and table in before.tables and table in after.tables:
            rows = comparison.compare(store.read(old, table), store.read(new, table), table, value, FACTOR)
            found[table] = {kind: {"total": len(each), "rows": each[:ROWS]} for kind, each in rows.items()}
    sizes = {
        name: [m.tables[name].rows if name in m.tables else 0 for m in (before, after)]
        for name in sorted({*before.tables, *after.tables})
    }
    return {"old": old, "new": new, "sizes": sizes, "differences": found}


def apply(folder: Path | None, version: str) -> str:
    try:
        return str(_store(folder).activate(version).version)
    except RoomMissing:
        raise
    except TidegateError as error:
        raise ActionRefused(str(error), getattr(error, "hint", "")) from error


def roll_back(folder: Path | None) -> str:
    try:
        return str(_store(folder).rollback().version)
    except RoomMissing:
        raise
    except TidegateError as error:
        raise ActionRefused(str(error), getattr(error, "hint", "")) from error
