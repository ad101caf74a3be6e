"""Reports of pipeline and lab as the page lists and shows them: files below folders that were named, and no others.

A folder is searched for `report.html` (the pipeline's) and for pages of the lab (`README.md` with pictures beside it).
Markdown is rendered without any HTML of its own; a report in HTML is shown in a sandbox.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tidegate.console.errors import RoomMissing
from tidegate.console.rooms import find_room, how_to_install

DEPTH: Final = 4
MAX_REPORTS: Final = 200
MAX_BYTES: Final = 20_000_000
PICTURES: Final = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}
SKIPPED: Final = {"node_modules", "__pycache__"}
MEASURED: Final = re.compile(r"^Measured (\d{4}-\d\d-\d\d\S*) ", re.MULTILINE)
NUMBER: Final = re.compile(r"(\d{1,4})\. ")


@dataclass(frozen=True, slots=True)
class Report:
    """One page, as it was when it was found: it may be gone since. `name` is for addresses: no part of a path comes
    from a browser."""

    path: Path
    root: Path
    modified: float
    title: str
    measured: tuple[str, str] | None = None  # by its own words, the first and the last time

    @property
    def name(self) -> str:
        return sha256(str(self.path).encode()).hexdigest()[:16]

    @property
    def kind(self) -> str:
        return "pipeline" if self.path.suffix == ".html" else "lab"

    @property
    def order(self) -> tuple[bool, int, float]:
        """What was made of one's own data first, the newest at the top; then the papers by their numbers."""
        number = NUMBER.match(self.title)
        return number is not None, int(number[1]) if number else 0, -self.modified

    def as_object(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "place": str(self.path.relative_to(self.root)),
            "modified": self.modified,
            "measured": self.measured,
        }


def find(folders: tuple[Path, ...]) -> list[Report]:
    """All reports, in the order of the page."""
    if not folders:
        raise RoomMissing(
            "No folder of reports was named.",
            "tidegate lab run NAME --out DIR, or tidegate pipeline report; then: tidegate console --reports DIR",
        )
    found: list[Report] = []
    for root in folders:
        _search(root, root, DEPTH, found)
    return sorted(found, key=lambda report: report.order)


def _search(root: Path, folder: Path, depth: int, found: list[Report]) -> None:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    names = {entry.name for entry in entries}
    for entry in entries:
        if len(found) >= MAX_REPORTS:
            return
        if entry.is_symlink():
            continue
        if entry.is_dir():
            if depth and not entry.name.startswith(".") and entry.name not in SKIPPED:
                _search(root, entry, depth - 1, found)
        elif entry.name == "report.html" or (
            entry.name == "README.md" and any(name.endswith(".json") for name in names)
        ):
            try:
                found.append(_read(entry, root, entry.stat().st_mtime))
            except OSError:
                continue  # it was there a moment ago


@lru_cache(MAX_REPORTS)
def _read(path: Path, root: Path, modified: float) -> Report:
    """Read once for each time it was written: the page looks every two seconds. Raises OSError."""
    place = str(path.parent.relative_to(root))
    if path.suffix == ".html":
        return Report(path, root, modified, f"Pipeline: {place}")
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_BYTES)
    head = re.search(r"^# (.+)", text, re.MULTILINE)
    times = sorted(time for time in MEASURED.findall(text) if _is_time(time))
    return Report(
        path, root, modified, head[1].strip() if head else place, (times[0], times[-1]) if times else None
    )


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def get(folders: tuple[Path, ...], name: str) -> Report | None:
    return next((report for report in find(folders) if report.name == name), None)


def render(report: Report) -> str:
    """A page of the lab as HTML; raw HTML in it is shown as text."""
    from markdown_it import MarkdownIt

    try:
        text = report.path.read_text(encoding="utf-8", errors="replace")[:MAX_BYTES]
    except OSError as error:
        raise RoomMissing(f"The report cannot be read: {error.strerror}.", "it may have been moved") from None
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")

    def picture(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        source = str(tokens[index].attrGet("src") or "")
        is_own = "/" not in source and Path(source).suffix in PICTURES
        tokens[index].attrSet("src", f"/reports/{report.name}/{source}" if is_own else "")
        return str(self.image(tokens, index, options, env))

    def cell(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        """Columns of numbers are aligned by a class: the page's policy allows no style in an element."""
        style = str(tokens[index].attrs.pop("style", ""))
        if style.endswith("right"):
            tokens[index].attrs["class"] = "right"
        return str(self.renderToken(tokens, index, options, env))

    parser.add_render_rule("image", picture)
    parser.add_render_rule("td_open", cell)
    parser.add_render_rule("th_open", cell)
    return str(parser.render(text))


def read_picture(report: Report, file: str) -> tuple[bytes, str] | None:
    """A picture beside a page, and its type."""
    kind = PICTURES.get(Path(file).suffix)
    if kind is None or file != Path(file).name or file.startswith("."):
        return None
    path = report.path.parent / file
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_bytes(), kind
    except OSError:
        return None


def describe_lake(place: str) -> list[dict[str, Any]]:
    """One row a table of the lake."""
    catalog, target = find_room("lake.catalog"), find_room("lake.target")
    if catalog is None or target is None:
        raise RoomMissing("Support for the lake is not installed.", how_to_install("lake"))
    if not place:
        raise RoomMissing(
            "No lake was named.",
            "tidegate serve --set lake.path=DIR records; then: tidegate console --lake DIR",
        )
    found = catalog.summaries(list(catalog.scan(target.Target.open(place))))
    return [
        {
            "table": name,
            "files": each.files,
            "rows": each.rows,
            "size_bytes": each.size,
            "nodes": sorted(each.nodes),
            "first": each.first.isoformat() if each.first else None,
            "last": each.last.isoformat() if each.last else None,
        }
        for name, each in found.items()
    ]
