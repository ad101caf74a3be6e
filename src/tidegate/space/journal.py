"""Updates on disk before they are acknowledged, and snapshots so that the journal does not grow for ever.

A record is its length, a checksum, and JSON. A snapshot is a file of its own: one line about versions and watches,
then N-Triples. After a crash the newest snapshot is loaded and the records after it are applied again; standing
queries see them as they did before, so the notifications that somebody missed are there again, with the same numbers.
The last record may be torn: nobody was told that it was done. Damage anywhere else is refused, not repaired.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.space.errors import Fault, SpaceError

log = logging.getLogger("tidegate.space.journal")
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HEAD: Final = struct.Struct("<II")
SNAPSHOT_BYTES: Final = 64 * 1024 * 1024  # of journal that make a snapshot worth while
Done: TypeAlias = Callable[[SpaceError | None], None]
"""Called when something is on disk, or with the reason why it will never be."""


class Journal:
    """One file being written; `commit` waits until what was added so far is on disk, many callers at once."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path = path
        self._sync = sync
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self._file).st_size
        self._pending: list[bytes] = []
        self._waiters: list[Done] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "tidegate-journal")
        self._error: OSError | None = None
        self.commits = 0

    def add(self, record: dict[str, Any]) -> None:
        data = _json(record).encode()
        self._pending.append(_HEAD.pack(len(data), zlib.crc32(data)) + data)
        self.size += len(data) + _HEAD.size

    async def commit(self) -> None:
        """Raises `SpaceError` if the disk does not take it; the journal takes nothing any more then."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_commit(partial(_tell, waiter))
        await waiter

    def on_commit(self, done: Done) -> None:
        """The same without a wait: in the order of the calls, at once if all is on disk already."""
        if self._error is not None:
            done(_cannot_write(self._error))
        elif self._writing is None and not self._pending:
            done(None)
        else:
            self._waiters.append(done)
            if self._writing is None:
                self._writing = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        """One write and one sync for all that came while the last one was under way."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiters:
                data, self._pending = b"".join(self._pending), []
                waiters, self._waiters = self._waiters, []
                try:
                    if data:
                        await loop.run_in_executor(self._thread, self._write, data)
                except OSError as error:
                    self._error = error
                    waiters += self._waiters
                    self._waiters = []
                self._tell_all(waiters)
        finally:
            self._writing = None

    def _tell_all(self, waiters: list[Done]) -> None:
        """Whatever one of them does with it, the others are told."""
        for done in waiters:
            try:
                done(None if self._error is None else _cannot_write(self._error))
            except Exception:
                log.exception("what was to happen after a commit failed")

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        if self._sync:
            os.fdatasync(self._file)
        self.commits += 1

    async def close(self) -> None:
        if self._error is None and (self._pending or self._waiters):
            await self.commit()
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()
        os.close(self._file)


def _tell(waiter: asyncio.Future[None], error: SpaceError | None) -> None:
    if waiter.done():
        return  # whoever waited has left
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


def _cannot_write(error: OSError) -> SpaceError:
    return SpaceError(
        Fault.INTERNAL,
        f"the journal cannot be written: {error.strerror}",
        hint="look at the disk, then restart",
    )


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """All whole records; a torn last one is cut off the file."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        begin = at + _HEAD.size
        if begin > len(data):
            break
        size, checksum = _HEAD.unpack_from(data, at)
        end = begin + size
        record = data[begin:end]
        if end > len(data) or (zlib.crc32(record) != checksum and end == len(data)):
            break
        if zlib.crc32(record) != checksum:
            raise SpaceError(
                Fault.INTERNAL,
                f"{path} is damaged at byte {at}",
                hint="restore it from a backup; nothing was changed",
            )
        yield json.loads(record)
        at = end
    if at < len(data):
        os.truncate(path, at)


def write_snapshot(path: Path, meta: dict[str, Any], triples: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f"_{path.name}")
    with temporary.open("wb") as file:
        file.write(json.dumps(meta, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        file.write(triples)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """So that a new name in it outlives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_snapshot(path: Path) -> tuple[dict[str, Any], bytes]:
    head, _, triples = path.read_bytes().partition(b"\n")
    try:
        meta = json.loads(head)
    except ValueError:
        raise SpaceError(
            Fault.INTERNAL, f"{path} is damaged", hint="restore it from a backup; nothing was changed"
        ) from None
    return meta, triples
