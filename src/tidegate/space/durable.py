"""A space that outlives its process: the engine, its journal, and the snapshots between."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyoxigraph import Triple

from tidegate.private import make_folder, opener, tighten
from tidegate.space.engine import Outcome, Plan, SpaceEngine
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.journal import (
    Done,
    Journal,
    damaged,
    encode,
    read_records,
    read_snapshot,
    sync_folder,
    write_snapshot,
)
from tidegate.space.lock import FolderLock
from tidegate.space.outline import outline
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import Change, StandingQuery
from tidegate.space.terms import row_from_json, row_json, to_ntriples
from tidegate.space.transfer import read_ntriples

log = logging.getLogger("tidegate.space.durable")
_SNAPSHOT: Final = re.compile(r"snapshot-(\d+)(?:-(\d+))?\.nt")
_JOURNAL: Final = re.compile(r"journal-(\d+)(?:-(\d+))?\.log")
# Aggregates that may give something else when the same triples are asked in another order, as after a snapshot.
_BY_ORDER: Final = frozenset(("SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT"))
Place: TypeAlias = tuple[int, int]
"""The version at which a file begins, and how many began there before it."""


class DurableSpace:
    """With `folder` None nothing is kept, and `commit` has nothing to wait for."""

    def __init__(
        self,
        name: str,
        limits: SpaceLimits,
        folder: Path | None = None,
        *,
        sync: bool = True,
        snapshot_bytes: int | None = None,
    ) -> None:
        self.engine = SpaceEngine(name, limits)
        self._folder = folder
        self._sync = sync
        self._snapshot_bytes = self._due = snapshot_bytes or limits.snapshot_bytes
        self._place: Place = (0, 0)
        self._journal: Journal | None = None
        self._snapshot: asyncio.Task[None] | None = None
        self._lock: FolderLock | None = None
        self._is_closing = False
        self._repeated: dict[int, int] = {}  # checksums of the updates applied again, by version
        self.snapshots = 0
        self.recovered = 0  # records applied again at the start
        self.epoch = secrets.token_hex(4)
        """Tells this space from one of the same name that was lost: versions and numbers are of one epoch."""
        self._start = secrets.token_hex(4)
        if folder is not None:
            make_folder(folder)
            tighten(*folder.iterdir())
            self._lock = FolderLock(folder)
            try:
                self.epoch = _epoch(folder / "epoch", self.epoch)
                self._journal = Journal(self._recover(folder), sync=sync)
                sync_folder(folder)
            except BaseException:
                self._lock.release()
                raise

    def apply(self, removed: list[Triple], added: list[Triple]) -> Outcome:
        return self.carry_out(self.engine.plan(removed, added))

    def carry_out(self, plan: Plan, ended: Mapping[str, SpaceError] | None = None) -> Outcome:
        if self._journal is None or not (plan.removed or plan.added):
            return self.engine.carry_out(plan, ended)
        self._journal.check()
        record = encode(self._record(plan))  # which may be too large: nothing has happened yet
        outcome = self.engine.carry_out(plan, ended)
        for standing, _ in outcome.failed:
            # Before the update: it is not to follow that again after a restart.
            self._journal.add({"end": standing.id})
        self._journal.add_encoded(record)
        return outcome

    def _record(self, plan: Plan) -> dict[str, Any]:
        record: dict[str, Any] = {"v": self.engine.version + 1}
        if plan.removed and len(plan.removed) == len(self.engine.store):
            record["clear"] = True  # however much that was
        elif plan.removed:
            record["-"] = to_ntriples(plan.removed)
        if plan.added:
            record["+"] = to_ntriples(plan.added)
        return record

    def life(self, standing: StandingQuery) -> str:
        """The same as long as numbers go on from one another, and rows are those of before."""
        life = f"{self.epoch}.{standing.life}"
        return f"{life}.{self._start}" if _depends_on_order(standing.text) else life

    def watch(self, text: str, fit: Callable[[StandingQuery], None] | None = None) -> StandingQuery:
        """What `fit` raises ends a new one before anything of it is on disk."""
        if self._journal is not None:
            self._journal.check()
        known = len(self.engine.standing)
        standing = self.engine.watch(text)
        is_new = len(self.engine.standing) > known
        try:
            if fit is not None:
                fit(standing)
        except BaseException:
            if is_new:
                self.engine.end_watch(standing.id)
                self.engine.lives -= 1  # the lives after it are the same when it all is read again
            raise
        if is_new and self._journal is not None:
            self._journal.add({"watch": text})
        return standing

    def end_watch(self, watch: str) -> None:
        if self.engine.end_watch(watch) and self._journal is not None:
            self._journal.add({"end": watch})

    async def commit(self) -> None:
        """Wait until all that was done so far is on disk."""
        journal = self._journal
        if journal is not None:
            await journal.commit()  # the one that has what was done, though another may follow
            self._rotate_if_due(journal)

    def on_commit(self, done: Done) -> None:
        """The same without a wait."""
        journal = self._journal
        if journal is None:
            done(None)
            return

        def committed(error: SpaceError | None) -> None:
            done(error)
            if error is None:
                self._rotate_if_due(journal)

        journal.on_commit(committed)

    async def close(self) -> None:
        self._is_closing = True  # the last commits begin no snapshot that nobody waits for
        if self._snapshot is not None:
            await self._snapshot
        if self._journal is not None:
            await self._journal.close()
        if self._lock is not None:
            self._lock.release()

    def _rotate_if_due(self, journal: Journal) -> None:
        is_due = journal.size > self._due and journal is self._journal and self._snapshot is None
        if not is_due or self._is_closing:
            return
        self._due = journal.size + self._snapshot_bytes  # if it cannot be now
        try:
            self._rotate(journal)
        except OSError as error:
            # What was to be kept is on disk, in a journal that is longer than it might be.
            log.error("a snapshot cannot be begun", exc_info=error, extra={"space": self.engine.name})

    def _rotate(self, old: Journal) -> None:
        """A new journal from here, and a child that writes what all before it amounts to."""
        assert self._folder is not None
        version = self.engine.version
        place = (version, self._place[1] + 1 if version == self._place[0] else 0)
        path = self._folder / _file_name("journal", place)
        path.touch(mode=0o600)
        if self._sync:
            sync_folder(self._folder)  # what is acknowledged from here on is found under this name
        self._journal = Journal(path, sync=self._sync, after=old)
        self._place, self._due = place, self._snapshot_bytes
        target = self._folder / _file_name("snapshot", place)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _write_and_exit(target, self.engine, parent)
        self._snapshot = asyncio.create_task(self._finish(pid, place, self._journal))

    async def _finish(self, pid: int, place: Place, journal: Journal) -> None:
        try:
            if journal.older_closed is not None:
                await asyncio.shield(journal.older_closed)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            if status != 0:
                log.error("a snapshot was not written", extra={"space": self.engine.name, "status": status})
            elif self._folder is not None:
                self.snapshots += 1
                for path in self._folder.iterdir():
                    found = _SNAPSHOT.fullmatch(path.name) or _JOURNAL.fullmatch(path.name)
                    if found and _place(found) < place:
                        path.unlink()
        finally:
            self._snapshot = None

    def _recover(self, folder: Path) -> Path:
        """Load what is there; gives the journal to go on with."""
        for path in folder.glob("_snapshot-*"):
            path.unlink()  # the process ended before it was whole
        names = [path.name for path in folder.iterdir()]
        snapshots = sorted(_place(found) for name in names if (found := _SNAPSHOT.fullmatch(name)))
        start = snapshots[-1] if snapshots else (0, 0)
        if snapshots:
            _load_snapshot(folder / _file_name("snapshot", start), self.engine)
        places = sorted(_place(found) for name in names if (found := _JOURNAL.fullmatch(name)))
        journals = {place: folder / _file_name("journal", place) for place in places}
        for place, path in journals.items():
            if place >= start:
                # Nothing is written to a journal before the one before it is closed.
                is_last = not any(later.stat().st_size for each, later in journals.items() if each > place)
                for record in read_records(path, is_last=is_last):
                    self._repeat(record)
        self._repeated.clear()
        self._place = max([start, *places])
        return folder / _file_name("journal", self._place)

    def _repeat(self, record: dict[str, Any]) -> None:
        self.recovered += 1
        engine = self.engine
        if "watch" in record:
            _watch_again(engine, record["watch"])
        elif "end" in record:
            engine.end_watch(record["end"])
        elif record["v"] == engine.version + 1:
            removed = list(engine.store) if record.get("clear") else read_ntriples(record.get("-", ""))
            outcome = engine.apply(removed, read_ntriples(record.get("+", "")))
            if engine.version != record["v"]:
                raise _gap(engine, record["v"])
            for standing, error in outcome.failed:
                _say_left_out(engine, standing.text, error)
            self._repeated[record["v"]] = _checksum(record)
        elif record["v"] > engine.version:
            raise _gap(engine, record["v"])
        elif self._repeated.get(record["v"]) != _checksum(record):
            raise SpaceError(
                Fault.INTERNAL,
                f"the journal of space {engine.name!r} has two different versions {record['v']}",
                hint="two processes wrote to it: restore the folder from a backup",
            )


def _checksum(record: dict[str, Any]) -> int:
    clear = "*" if record.get("clear") else ""
    return zlib.crc32(f"{clear}{record.get('-', '')}\n{record.get('+', '')}".encode())


def _file_name(kind: str, place: Place) -> str:
    version, count = place
    return f"{kind}-{version}{f'-{count}' if count else ''}.{'nt' if kind == 'snapshot' else 'log'}"


def _place(found: re.Match[str]) -> Place:
    return int(found[1]), int(found[2] or 0)


@lru_cache(maxsize=4096)
def _depends_on_order(text: str) -> bool:
    words = outline(text).words
    # The store's parser needs no space before a function: HAVINGSUM() is one, too.
    return not words or any(word.endswith(tuple(_BY_ORDER)) for word in words)


def _watch_again(engine: SpaceEngine, text: str) -> StandingQuery | None:
    """None if it cannot be watched any more: whoever wants it is told so when they ask."""
    try:
        return engine.watch(text)
    except SpaceError as error:
        _say_left_out(engine, text, error)
        engine.lives += 1  # the lives after it are the same as before
        return None


def _say_left_out(engine: SpaceEngine, text: str, error: SpaceError) -> None:
    fields = {"space": engine.name, "watch": text[:200], "reason": str(error)}
    log.warning("a watch is left out", extra=fields)


def _epoch(path: Path, fresh: str) -> str:
    if path.exists():
        return path.read_text().strip()
    temporary = path.with_name("_epoch")
    with open(temporary, "w", opener=opener) as file:
        file.write(fresh)
    temporary.rename(path)
    return fresh


def _gap(engine: SpaceEngine, version: int) -> SpaceError:
    return SpaceError(
        Fault.INTERNAL,
        f"the journal of space {engine.name!r} goes from version {engine.version} to {version}",
        hint="a file is missing: restore the folder from a backup",
    )


def _write_and_exit(target: Path, engine: SpaceEngine, parent: int) -> None:
    """In the child: never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.closerange(3, 1 << 16)
        os.nice(5)
        # If the parent is dead, another process may have gone on from the journals in another way.
        write_snapshot(target, _meta(engine), engine.store.dump(), lambda: os.getppid() == parent)
        code = 0
    finally:
        os._exit(code)


def _meta(engine: SpaceEngine) -> dict[str, Any]:
    return {
        "version": engine.version,
        "lives": engine.lives,
        "watches": [
            {
                "text": each.text,
                "life": each.life,
                "number": each.number,
                "version": each.version,
                "history": [change_json(each.variables, change) for change in each.history],
            }
            for each in engine.standing.values()
        ],
    }


def _load_snapshot(path: Path, engine: SpaceEngine) -> None:
    meta, triples = read_snapshot(path)
    try:
        engine.store.bulk_load(triples)
    except SyntaxError:
        raise damaged(path) from None
    engine.version = meta["version"]
    for fields in meta["watches"]:
        standing = _watch_again(engine, fields["text"])
        if standing is None:
            continue
        changes = [change_from_json(standing.variables, each) for each in fields["history"]]
        standing.restore(fields["life"], fields["number"], fields["version"], changes)
    engine.lives = meta["lives"]


def change_json(variables: list[str], change: Change) -> dict[str, Any]:
    return {
        "version": change.version,
        "number": change.number,
        "added": [row_json(variables, row) for row in change.added],
        "removed": [row_json(variables, row) for row in change.removed],
    }


def change_from_json(variables: list[str], fields: dict[str, Any]) -> Change:
    return Change(
        version=fields["version"],
        number=fields["number"],
        added=[row_from_json(variables, row) for row in fields["added"]],
        removed=[row_from_json(variables, row) for row in fields["removed"]],
    )
