"""The spool: a folder of Arrow files between the process that receives and the tasks that read.

    00000000000000012000-8000.arrow     rows 12 000 to 19 999, complete
    _open-00000000000000020000.arrow    being written; Spark never looks at it
    committed                           rows below this number are no longer needed
    lock, status.json, identity.json    of the process that receives
    done/                               which rows tasks have read, and in what time

A row is acknowledged to the broker when it is synced, in whatever file; a segment becomes visible by a rename. After a
crash the open file is read as far as it is whole and becomes a segment, so nothing that was acknowledged is lost. The
number of a row is its offset in Spark; numbers never repeat, also when all segments are gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.private import make_folder, opener, tighten
from tidegate.spark.errors import SpoolError

SCHEMA = pa.schema(
    [
        ("received", pa.timestamp("us", tz="UTC")),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("dup", pa.bool_()),
        ("content_type", pa.string()),
        ("response_topic", pa.string()),
        ("correlation_data", pa.binary()),
        ("user_properties", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
    ],
    metadata={"tidegate.spool": "1"},
)
"""Columns of a segment; the number of a row is its place."""

_SHARED = "the spool must be a folder that driver and executors share, as the checkpoint's is"
_TOGETHER = "the spool and the checkpoint of a query belong together: keep both, or begin with both anew"
_NAME = re.compile(r"(\d{20})-(\d+)\.arrow")
_OPEN = re.compile(r"_open-(\d{20})\.arrow")
_DONE = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Rows `start` to `end` (excluded) in one file."""

    start: int
    rows: int

    @property
    def end(self) -> int:
        return self.start + self.rows

    @property
    def name(self) -> str:
        return f"{self.start:020d}-{self.rows}.arrow"


@dataclass(frozen=True, slots=True)
class Done:
    """A task read rows up to `end`, from `began` to `ended` (Unix time, microseconds)."""

    end: int
    rows: int
    began: int
    ended: int


class Spool:
    """The folder, for every process that uses it; it keeps no state of its own."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def create(self) -> None:
        try:
            make_folder(self.folder / "done")
            tighten(self.folder, *self.folder.iterdir())
        except OSError as error:
            raise SpoolError(
                f"the spool {self.folder} cannot be made: {error.strerror}",
                hint="choose a local folder that may be written to",
            ) from None

    def segments(self) -> list[Segment]:
        """Those that are complete, in order."""
        try:
            found = [_NAME.fullmatch(path.name) for path in self.folder.iterdir()]
        except OSError as error:
            raise SpoolError(
                f"the spool {self.folder} cannot be read: {error.strerror}", hint=_SHARED
            ) from None
        return sorted(Segment(int(each[1]), int(each[2])) for each in found if each is not None)

    def size_bytes(self) -> int:
        total = 0
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(".arrow"):
                    with contextlib.suppress(FileNotFoundError):  # committed meanwhile
                        total += entry.stat().st_size
        return total

    @property
    def committed(self) -> int:
        try:
            return int((self.folder / "committed").read_text())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise SpoolError(f"{self.folder / 'committed'} cannot be read: {error}", hint=_TOGETHER) from None

    def end(self) -> int:
        """The number that the next visible row gets."""
        segments = self.segments()
        return max(self.committed, segments[-1].end if segments else 0)

    def commit(self, end: int) -> None:
        """Rows below `end` have been processed: remember that, then delete the files that hold nothing else."""
        try:
            if end > self.committed:
                self.write_whole("committed", str(end))
            for segment in self.segments():
                if segment.end <= end:
                    (self.folder / segment.name).unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(
                f"the spool {self.folder} cannot be written to: {error.strerror}", hint="is the disk full?"
            ) from None

    def slices(self, start: int, end: int) -> list[tuple[Segment, int, int]]:
        """Which rows of which segments make up `start` to `end`; raises `SpoolError` if any is missing."""
        found = []
        at = start
        for segment in self.segments():
            if segment.end <= start or segment.start >= end:
                continue
            if segment.start > at:
                break  # a hole
            stop = min(segment.end, end)
            found.append((segment, at - segment.start, stop - segment.start))
            at = stop
        if at != end:
            raise SpoolError(
                f"rows {at} to {end} are not in the spool {self.folder}",
                hint=_TOGETHER,
            )
        return found

    def read(self, segment: Segment, first: int, last: int, *, chunk_rows: int) -> Iterator[pa.RecordBatch]:
        """Rows `first` to `last` (excluded, counted in the segment), in batches of a size that Spark likes."""
        path = self.folder / segment.name
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
                table = stream.read_all()
        except FileNotFoundError:
            raise SpoolError(f"the segment {path} is not here", hint=_SHARED) from None
        except (pa.ArrowException, OSError) as error:
            raise SpoolError(f"the segment {path} is damaged: {error}", hint=_TOGETHER) from None
        yield from table.slice(first, last - first).combine_chunks().to_batches(max_chunksize=chunk_rows)

    def recover(self) -> int:
        """Make segments of what a killed process left open; gives how many rows were saved. Needs the lock."""
        saved = 0
        for path in sorted(self.folder.iterdir()):
            found = _OPEN.fullmatch(path.name)
            if found is None:
                if path.name.startswith("_"):
                    path.unlink()
                continue
            batches = list(_whole_batches(path))
            segment = Segment(int(found[1]), sum(batch.num_rows for batch in batches))
            if segment.rows and not (self.folder / segment.name).exists():
                temporary = self.folder / f"_recovered-{segment.name}"
                with open(temporary, "wb", opener=opener) as file, pa.ipc.new_stream(file, SCHEMA) as stream:
                    for batch in batches:
                        stream.write_batch(batch)
                _sync(temporary)
                temporary.rename(self.folder / segment.name)
                _sync(self.folder)
                saved += segment.rows
            path.unlink()
        return saved

    def note_done(self, done: Done) -> None:
        """A task has read its rows. For load reports only, so it never fails a task."""
        name = f"{done.end}-{done.rows}-{done.began}-{done.ended}"
        with contextlib.suppress(OSError):
            (self.folder / "done" / name).touch()

    def take_done(self) -> list[Done]:
        """What tasks noted since the last call."""
        taken = []
        for path in (self.folder / "done").iterdir():
            found = _DONE.fullmatch(path.name)
            path.unlink(missing_ok=True)
            if found is not None:
                taken.append(Done(*map(int, found.groups())))
        return taken

    def read_json(self, name: str) -> dict[str, Any]:
        """A file of ours; empty if there is none."""
        try:
            found = json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SpoolError(f"{self.folder / name} cannot be read: {error}", hint=_TOGETHER) from None
        return found if isinstance(found, dict) else {}

    def write_whole(self, name: str, text: str) -> None:
        """Replace a small file in one step, synced."""
        temporary = self.folder / f".{name}.{os.getpid()}"
        with open(temporary, "w", opener=opener) as out:
            out.write(text)
        _sync(temporary)
        temporary.replace(self.folder / name)
        _sync(self.folder)


class SegmentWriter:
    """One segment while it is written. After `append` its rows are on disk, after `finish` Spark may see them."""

    def __init__(self, spool: Spool, start: int) -> None:
        self._folder = spool.folder
        self._path = self._folder / f"_open-{start:020d}.arrow"
        self._file = open(self._path, "wb", opener=opener)  # noqa: SIM115 - `finish` closes it
        self._stream = pa.ipc.new_stream(self._file, SCHEMA)
        _sync(self._folder)  # the name must survive, or its synced rows would not
        self.start = start
        self.rows = 0

    @property
    def size_bytes(self) -> int:
        return self._file.tell()

    def append(self, batch: pa.RecordBatch) -> None:
        self._stream.write_batch(batch)
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self.rows += batch.num_rows

    def abandon(self) -> None:
        """After a failed `append`: the file may end in half a batch, so it is left to `Spool.recover`."""
        with contextlib.suppress(OSError):
            self._file.close()

    def finish(self) -> Segment:
        self._stream.close()
        self._file.close()
        segment = Segment(self.start, self.rows)
        # Not synced: after a crash the open file is either found again, or has become the segment.
        self._path.rename(self._folder / segment.name)
        return segment


def _whole_batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            while True:
                batch = stream.read_next_batch()
                batch.validate(full=True)
                yield batch
    except (StopIteration, pa.ArrowInvalid, OSError, EOFError):
        return  # what follows was never synced, so it was never acknowledged


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
