"""Updates on disk before they are acknowledged, and snapshots so that the journal does not grow for ever.

A record is its length, a checksum, and JSON. A snapshot is a file of its own: one line with a checksum, its size, and
what there is to know about versions and watches, then N-Triples. After a crash the newest snapshot is loaded and the
records after it are applied again; standing queries see them as they did before, so the notifications that somebody
missed are there again, with the same numbers. The last record may be torn: nobody was told that it was done. It is cut
off and kept in a file of its own. Damage anywhere else is refused, not repaired.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.private import opener
from tidegate.space.errors import Fault, SpaceError

log = logging.getLogger("tidegate.space.journal")
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HEAD: Final = struct.Struct("<II")
_BEGIN: Final = re.compile(rb'\{"(?:v|watch|end)":')  # of what any record holds
_CHECKED: Final = re.compile(rb'\{"crc":(\d+),"size":(\d+),')  # older snapshots begin with the version
MOST: Final = 2**32 - 1  # bytes of a record
Done: TypeAlias = Callable[[SpaceError | None], None]
"""Called when something is on disk, or with the reason why it will never be."""


class Journal:
    """One file being written; `commit` waits until what was added so far is on disk, many callers at once.

    `after` is the journal that this one follows: it is closed, and nothing is written here before that is done.
    """

    def __init__(self, path: Path, *, sync: bool = True, after: Journal | None = None) -> None:
        self.path = path
        self._sync = sync
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self._file).st_size
        self._pending: list[bytes] = []
        self._waiters: list[Done] = []
        self._writing: asyncio.Task[None] | None = None
        # One thread for all of them: where no new one can be started, the next journal can be written all the same.
        self._thread = ThreadPoolExecutor(1, "tidegate-journal") if after is None else after._hand_over()
        self._has_thread = True
        self._error: OSError | None = None
        self.commits = 0
        self._older = after
        self.older_closed = None if after is None else asyncio.ensure_future(after.close())

    def _hand_over(self) -> ThreadPoolExecutor:
        self._has_thread = False
        return self._thread

    def check(self) -> None:
        """Raises `SpaceError` if the disk did not take something: nothing may be done that it should take."""
        error = self._error if self._older is None else self._error or self._older._error
        if error is not None:
            raise _cannot_write(error)

    def add(self, record: dict[str, Any]) -> None:
        self.add_encoded(encode(record))

    def add_encoded(self, data: bytes) -> None:
        if self._error is not None:
            return  # nobody is told that it was done
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
        elif self._writing is None and not self._pending and self._older is None:
            done(None)
        else:
            self._waiters.append(done)
            if self._writing is None:
                self._writing = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        """One write and one sync for all that came while the last one was under way."""
        loop = asyncio.get_running_loop()
        try:
            await self._wait_for_older()
            while self._waiters:
                data, self._pending = b"".join(self._pending), []
                waiters, self._waiters = self._waiters, []
                try:
                    if data and self._error is None:
                        await loop.run_in_executor(self._thread, self._write, data)
                except (OSError, RuntimeError) as error:  # the latter if no thread can be started
                    self._error = error if isinstance(error, OSError) else OSError(errno.EAGAIN, str(error))
                    waiters += self._waiters
                    self._waiters = []
                self._tell_all(waiters)
        finally:
            self._writing = None

    async def _wait_for_older(self) -> None:
        if self._older is not None and self.older_closed is not None:
            await asyncio.shield(self.older_closed)
            self._error = self._older._error
            self._older = None

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
        if self._error is None and (self._pending or self._waiters or self._older):
            try:
                await self.commit()
            except SpaceError:
                pass  # those who waited for it were told
        if self._writing is not None:
            await self._writing
        if self._has_thread:
            self._thread.shutdown()
        os.close(self._file)


def encode(record: dict[str, Any], most: int = MOST) -> bytes:
    """Raises `SpaceError` for what no record can hold."""
    data = _json(record).encode()
    if len(data) > most:
        raise SpaceError(Fault.TOO_LARGE, f"a change of {len(data)} bytes", hint="split it")
    return data


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


def read_records(path: Path, *, is_last: bool = True) -> Iterator[dict[str, Any]]:
    """All whole records. Only the last journal may end in a torn one, which is cut off and kept beside it."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        end = _record_end(data, at)
        if end is None:
            break
        yield json.loads(data[at + _HEAD.size : end])
        at = end
    if at == len(data):
        return
    if not is_last or _has_record(data, at):
        raise SpaceError(
            Fault.INTERNAL,
            f"{path} is damaged at byte {at}",
            hint="restore it from a backup; nothing was changed",
        )
    _cut(path, data, at)


def _record_end(data: bytes, at: int) -> int | None:
    """None if no whole record begins here; one without content is none, such as a disk leaves after a power loss."""
    begin = at + _HEAD.size
    if begin > len(data):
        return None
    size, checksum = _HEAD.unpack_from(data, at)
    end: int = begin + size
    is_whole = size > 0 and end <= len(data) and zlib.crc32(memoryview(data)[begin:end]) == checksum
    return end if is_whole else None


def _has_record(data: bytes, at: int) -> bool:
    """Whether a whole record begins anywhere after this place."""
    return any(
        _record_end(data, found.start() - _HEAD.size) is not None
        for found in _BEGIN.finditer(data, at + _HEAD.size + 1)
    )


def _cut(path: Path, data: bytes, at: int) -> None:
    kept = path.with_name(f"torn-{path.stem}-{at}.bin")
    with open(kept, "wb", opener=opener) as file:
        file.write(data[at:])
        file.flush()
        os.fsync(file.fileno())
    os.truncate(path, at)
    log.warning("a torn record was cut off", extra={"journal": str(path), "at": at, "kept": str(kept)})


def write_snapshot(
    path: Path, meta: dict[str, Any], triples: bytes, is_wanted: Callable[[], bool] = lambda: True
) -> None:
    """Whole or not at all; in the end it is asked whether it still `is_wanted`."""
    temporary = path.with_name(f"_{path.name}")
    with open(temporary, "wb", opener=opener) as file:
        head = _json(meta).encode()
        checksum = zlib.crc32(triples, zlib.crc32(head))
        file.write(f'{{"crc":{checksum},"size":{len(triples)},'.encode() + head[1:] + b"\n")
        file.write(triples)
        file.flush()
        os.fsync(file.fileno())
    if not is_wanted():
        temporary.unlink()
        return
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
    """Raises `SpaceError` for one that is not whole."""
    head, _, triples = path.read_bytes().partition(b"\n")
    found = _CHECKED.match(head)
    if found is not None:
        head = b"{" + head[found.end() :]
        checksum = zlib.crc32(triples, zlib.crc32(head))
        if (checksum, len(triples)) != (int(found[1]), int(found[2])):
            raise damaged(path)
    elif not head.startswith(b'{"version":'):
        raise damaged(path)
    try:
        meta = json.loads(head)
    except ValueError:
        raise damaged(path) from None
    return meta, triples


def damaged(path: Path) -> SpaceError:
    return SpaceError(
        Fault.INTERNAL, f"{path} is damaged", hint="restore it from a backup; nothing was changed"
    )
