"""A folder of policy snapshots: `<version>/` with a manifest and Parquet tables, and a pointer to the current one.

A snapshot is written into a folder whose name begins with `_`, synced, and renamed; it never changes afterwards. Which
one is current is one line in `CURRENT`, replaced by one rename. `HISTORY` has the versions that were current before,
so that there is a way back. When it is full, snapshots that are older than all of it are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.policy.errors import PolicyError
from tidegate.private import make_folder, opener
from tidegate.schema import (
    PARQUET,
    POLICY_FORMAT,
    POLICY_MANIFEST,
    POLICY_POINTER,
    POLICY_TABLES,
    POLICY_VERSION_PATTERN,
    TEMPORARY,
    FileEntry,
    Manifest,
)

if TYPE_CHECKING:
    import pyarrow as pa

HISTORY = "HISTORY"
HISTORY_LINES = 100
BLOCK = 1 << 20
# Only these sort by age; others are names that somebody chose.
_TIMED = re.compile(r"\d{8}T\d{6}[0-9A-Za-z.-]*")


class PolicyStore:
    """All methods read or write the disk: not for the event loop."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    # -- reading --------------------------------------------------------------------------------------------

    def current(self) -> str | None:
        """The version in force; None if there is none yet. Raises PolicyError if the pointer makes no sense."""
        try:
            text = (self.folder / POLICY_POINTER).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(str(self.folder / POLICY_POINTER), f"cannot be read: {error}") from error
        return _checked(text, str(self.folder / POLICY_POINTER))

    def versions(self) -> list[str]:
        """Complete snapshots, oldest name first."""
        if not self.folder.is_dir():
            return []
        try:
            return sorted(
                path.name
                for path in self.folder.iterdir()
                if POLICY_VERSION_PATTERN.fullmatch(path.name) and (path / POLICY_MANIFEST).is_file()
            )
        except OSError as error:
            raise PolicyError(str(self.folder), f"cannot be read: {error.strerror or error}") from error

    def manifest(self, version: str) -> Manifest:
        """Raises PolicyError if there is no such snapshot or its manifest makes no sense."""
        path = self.folder / _checked(version, str(self.folder)) / POLICY_MANIFEST
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(self.versions()[-5:]) or "none"
            raise PolicyError(version, "no such snapshot", f"known: {known}") from None
        except (OSError, ValueError) as error:
            raise PolicyError(version, f"its manifest cannot be read: {error}") from error
        return _manifest(version, found)

    def path(self, version: str, table: str) -> Path:
        """The file of a table; raises PolicyError if the snapshot has none."""
        entry = self.manifest(version).tables.get(table)
        if entry is None:
            raise PolicyError(version, f"has no table {table}")
        return self.folder / version / entry.path

    def verify(self, version: str) -> Manifest:
        """Read every byte: sizes and checksums must be those of the manifest."""
        manifest = self.manifest(version)
        for name, entry in manifest.tables.items():
            path = self.folder / version / entry.path
            try:
                size = path.stat().st_size
                found = _sha256(path) if size == entry.bytes else ""
            except OSError as error:
                raise PolicyError(version, f"table {name} cannot be read: {error.strerror}") from error
            if size != entry.bytes:
                raise PolicyError(version, f"table {name} has {size} bytes, the manifest says {entry.bytes}")
            if found != entry.sha256:
                raise PolicyError(version, f"table {name} is not what the manifest says: another checksum")
        return manifest

    def read(self, version: str, table: str) -> pa.Table:
        """Rows of one table, with the columns and types of the schema; missing ones are null."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from tidegate.lake.arrow import arrow_schema

        path = self.path(version, table)
        try:
            with pq.ParquetFile(path) as file:
                data = file.read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise PolicyError(version, f"table {table} is not Parquet: {error}") from error
        return conform(data, arrow_schema(POLICY_TABLES[table]), f"{version}, table {table}")

    # -- writing --------------------------------------------------------------------------------------------

    def write(
        self,
        tables: Mapping[str, pa.Table],
        *,
        input_from: datetime,
        input_to: datetime,
        version: str | None = None,
        notes: str = "",
    ) -> Manifest:
        """Write a snapshot, not yet current. Without `version` its name is the time. Raises PolicyError."""
        import pyarrow.parquet as pq

        from tidegate.lake.arrow import arrow_schema

        now = datetime.now(UTC)
        version = _checked(version or f"{now:%Y%m%dT%H%M%S.%f}", str(self.folder))
        final = self.folder / version
        if final.exists():
            raise PolicyError(version, "there is a snapshot of this name", "choose another name")
        draft = self.folder / f"{TEMPORARY}{version}.{os.getpid()}"
        entries: dict[str, FileEntry] = {}
        try:
            make_folder(draft)
            for name, data in tables.items():
                if name not in POLICY_TABLES:
                    raise PolicyError(version, f"unknown table {name}", f"known: {', '.join(POLICY_TABLES)}")
                table = POLICY_TABLES[name]
                rows = conform(data, arrow_schema(table), f"{version}, table {name}")
                # Sorted by key: readers look up by bisection.
                rows = rows.sort_by([(column, "ascending") for column in table.key])
                path = draft / f"{name}{PARQUET}"
                with open(path, "wb", opener=opener) as out:
                    pq.write_table(rows, out, compression="zstd", store_schema=False)
                _sync(path)
                entries[name] = FileEntry(
                    path=path.name, rows=rows.num_rows, bytes=path.stat().st_size, sha256=_sha256(path)
                )
            manifest = Manifest(
                version=version,
                created=now.isoformat(),
                input_from=input_from.astimezone(UTC).isoformat(),
                input_to=input_to.astimezone(UTC).isoformat(),
                tables=entries,
                notes=notes,
            )
            text = json.dumps(asdict(manifest), indent=1, ensure_ascii=False)
            with open(draft / POLICY_MANIFEST, "w", encoding="utf-8", opener=opener) as out:
                out.write(text + "\n")
            _sync(draft / POLICY_MANIFEST)
            _sync(draft)
            draft.rename(final)
            _sync(self.folder)
        except OSError as error:
            raise PolicyError(str(final), f"cannot be written: {error.strerror or error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return manifest

    def activate(self, version: str) -> Manifest:
        """Make a snapshot current, after reading all of it; nodes that watch take it within seconds."""
        manifest = self.verify(version)
        before = self._sound_current()
        if before != version:
            history = self.history()
            if before is not None and history[-1:] != [before]:  # it is there if a change was interrupted
                history.append(before)
            history = history[-HISTORY_LINES:]
            self._replace(HISTORY, "".join(f"{each}\n" for each in history))
            self._replace(POLICY_POINTER, f"{version}\n")
            if len(history) == HISTORY_LINES:
                self._remove_older(history, version)
        return manifest

    def history(self) -> list[str]:
        """Versions that were current before, the latest last."""
        try:
            lines = (self.folder / HISTORY).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            return []
        return [line for line in lines if POLICY_VERSION_PATTERN.fullmatch(line)]

    def rollback(self) -> Manifest:
        """Make current what was current before; once more goes back further."""
        history, current = self.history(), self._sound_current()
        while history:
            version = history.pop()
            if version == current:
                continue  # a change was interrupted between its two files
            try:
                manifest = self.verify(version)
            except PolicyError:
                continue  # deleted, or damaged: further back
            # In this order a crash in between leaves the current one in the history, where it is passed over.
            self._replace(POLICY_POINTER, f"{version}\n")
            self._replace(HISTORY, "".join(f"{each}\n" for each in history))
            return manifest
        raise PolicyError(
            str(self.folder), "there is nothing to go back to", "tidegate policy apply DIR VERSION"
        )

    def _sound_current(self) -> str | None:
        """The current version; None also if the pointer makes no sense, for it is about to be replaced."""
        try:
            return self.current()
        except PolicyError:
            return None

    def _remove_older(self, history: list[str], current: str) -> None:
        """Remove snapshots and unfinished drafts that are older than all of the history. What cannot be removed stays.

        Nodes have a snapshot in memory; one that is just reading it finds a fault, and keeps what it has.
        """
        timed = [version for version in history if _TIMED.fullmatch(version)]
        if not timed:
            return
        oldest = min(timed)
        found: list[Path] = []
        with contextlib.suppress(OSError):
            found = list(self.folder.iterdir())
        for path in found:
            name = path.name.removeprefix(TEMPORARY)
            if not _TIMED.fullmatch(name) or name >= oldest or name == current or path.is_symlink():
                continue
            # First the manifest: a snapshot that is half removed is none. The next activation removes the rest.
            with contextlib.suppress(OSError):
                (path / POLICY_MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(path)

    def _replace(self, name: str, text: str) -> None:
        path = self.folder / name
        draft = path.with_name(f"{TEMPORARY}{name}.{os.getpid()}")
        try:
            with open(draft, "w", encoding="utf-8", opener=opener) as out:
                out.write(text)
            _sync(draft)
            draft.replace(path)
            _sync(self.folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise PolicyError(str(path), f"cannot be written: {error.strerror or error}") from error


def conform(data: pa.Table, schema: pa.Schema, place: str) -> pa.Table:
    """The columns of the schema in its types; unknown ones are left out, missing ones are null. Raises PolicyError."""
    import pyarrow as pa

    try:
        arrays = [
            data[field.name].cast(field.type)
            if field.name in data.column_names
            else pa.nulls(data.num_rows, field.type)
            for field in schema
        ]
    except (pa.ArrowException, KeyError) as error:
        raise PolicyError(place, f"a column has a wrong type: {error}") from error
    return pa.table(arrays, schema=schema)


def _manifest(version: str, found: Any) -> Manifest:
    try:
        if found["format"] != POLICY_FORMAT:
            raise PolicyError(
                version,
                f"its format is {found['format']}, not {POLICY_FORMAT}",
                "another version of tidegate wrote it",
            )
        tables = {
            str(name): FileEntry(
                path=str(entry["path"]),
                rows=int(entry["rows"]),
                bytes=int(entry["bytes"]),
                sha256=str(entry["sha256"]),
            )
            for name, entry in found["tables"].items()
            if name in POLICY_TABLES
        }
        if found["version"] != version or any(
            "/" in e.path or e.path.startswith(".") for e in tables.values()
        ):
            raise PolicyError(version, "its manifest is that of another snapshot")
        created = datetime.fromisoformat(found["created"])
        if created.tzinfo is None:
            raise PolicyError(version, f"its manifest says {created} and no time zone", "write it in UTC")
        return Manifest(
            version=version,
            created=created.isoformat(),
            input_from=str(found["input_from"]),
            input_to=str(found["input_to"]),
            tables=tables,
            notes=str(found.get("notes", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(version, f"its manifest makes no sense: {error!r}") from error


def _checked(version: str, place: str) -> str:
    if not POLICY_VERSION_PATTERN.fullmatch(version):
        raise PolicyError(
            place, f"{version[:80]!r} is no name of a snapshot", "letters, digits, dots and dashes"
        )
    return version


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
