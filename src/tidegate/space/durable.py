"""A space that outlives its process: the engine, its journal, and the snapshots between."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyoxigraph import RdfFormat, Triple, parse

from tidegate.space.engine import Outcome, Plan, SpaceEngine
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.journal import (
    SNAPSHOT_BYTES,
    Done,
    Journal,
    read_records,
    read_snapshot,
    sync_folder,
    write_snapshot,
)
from tidegate.space.lock import FolderLock
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import Change, StandingQuery
from tidegate.space.terms import row_from_json, row_json, to_ntriples

log = logging.getLogger("tidegate.space.durable")
_SNAPSHOT: Final = re.compile(r"snapshot-(\d+)\.nt")
_JOURNAL: Final = re.compile(r"journal-(\d+)\.log")


class DurableSpace:
    """With `folder` None nothing is kept, and `commit` has nothing to wait for."""

    def __init__(
        self,
        name: str,
        limits: SpaceLimits,
        folder: Path | None = None,
        *,
        sync: bool = True,
        snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> None:
        self.engine = SpaceEngine(name, limits)
        self._folder = folder
        self._sync = sync
        self._snapshot_bytes = snapshot_bytes
        self._journal: Journal | None = None
        self._snapshot: asyncio.Task[None] | None = None
        self._lock: FolderLock | None = None
        self._repeated: dict[int, int] = {}  # checksums of the updates applied again, by version
        self.snapshots = 0
        self.recovered = 0  # records applied again at the start
        self.epoch = secrets.token_hex(4)
        """Tells this space from one of the same name that was lost: versions and numbers are of one epoch."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
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
        if self._journal is not None:
            self._journal.check()
        outcome = self.engine.carry_out(plan, ended)
        if self._journal is not None and not outcome.is_empty:
            for standing, _ in outcome.failed:
                # Before the update: it is not to follow that again after a restart.
                self._journal.add({"end": standing.id})
            record: dict[str, Any] = {"v": outcome.version}
            if outcome.removed:
                record["-"] = to_ntriples(outcome.removed)
            if outcome.added:
                record["+"] = to_ntriples(outcome.added)
            self._journal.add(record)
        return outcome

    def life(self, standing: StandingQuery) -> str:
        """The same as long as numbers go on from one another."""
        return f"{self.epoch}.{standing.life}"

    def watch(self, text: str) -> StandingQuery:
        if self._journal is not None:
            self._journal.check()
        known = len(self.engine.standing)
        standing = self.engine.watch(text)
        if self._journal is not None and len(self.engine.standing) > known:
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
        if self._snapshot is not None:
            await self._snapshot
        if self._journal is not None:
            await self._journal.close()
        if self._lock is not None:
            self._lock.release()

    def _rotate_if_due(self, journal: Journal) -> None:
        if journal.size > self._snapshot_bytes and journal is self._journal and self._snapshot is None:
            self._rotate()

    def _rotate(self) -> None:
        """A new journal from here, and a child that writes what all before it amounts to."""
        assert self._folder is not None and self._journal is not None
        version = self.engine.version
        old = self._journal
        path = self._folder / f"journal-{version}.log"
        if path == old.path:
            return  # not one update since the last
        self._journal = Journal(path, sync=self._sync, after=old)
        if self._sync:
            sync_folder(self._folder)  # what is acknowledged from here on is found under this name
        target = self._folder / f"snapshot-{version}.nt"
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _write_and_exit(target, self.engine, parent)
        self._snapshot = asyncio.create_task(self._finish(pid, version, self._journal))

    async def _finish(self, pid: int, version: int, journal: Journal) -> None:
        try:
            if journal.older_closed is not None:
                await asyncio.shield(journal.older_closed)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            if status == 0 and self._folder is not None:
                self.snapshots += 1
                for path in self._folder.iterdir():
                    found = _SNAPSHOT.fullmatch(path.name) or _JOURNAL.fullmatch(path.name)
                    if found and int(found[1]) < version:
                        path.unlink()
        finally:
            self._snapshot = None

    def _recover(self, folder: Path) -> Path:
        """Load what is there; gives the journal to go on with."""
        for path in folder.glob("_snapshot-*"):
            path.unlink()  # the process ended before it was whole
        names = [path.name for path in folder.iterdir()]
        snapshots = sorted(int(found[1]) for name in names if (found := _SNAPSHOT.fullmatch(name)))
        start = snapshots[-1] if snapshots else 0
        if snapshots:
            _load_snapshot(folder / f"snapshot-{start}.nt", self.engine)
        journals = sorted(int(found[1]) for name in names if (found := _JOURNAL.fullmatch(name)))
        for number in journals:
            path = folder / f"journal-{number}.log"
            if number >= start:
                # Nothing is written to a journal before the one before it is closed.
                is_last = not any(
                    (folder / f"journal-{each}.log").stat().st_size for each in journals if each > number
                )
                for record in read_records(path, is_last=is_last):
                    self._repeat(record)
        self._repeated.clear()
        return folder / f"journal-{max([start, *journals])}.log"

    def _repeat(self, record: dict[str, Any]) -> None:
        self.recovered += 1
        engine = self.engine
        if "watch" in record:
            _watch_again(engine, record["watch"])
        elif "end" in record:
            engine.end_watch(record["end"])
        elif record["v"] == engine.version + 1:
            engine.apply(_triples(record.get("-", "")), _triples(record.get("+", "")))
            if engine.version != record["v"]:
                raise _gap(engine, record["v"])
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
    return zlib.crc32(f"{record.get('-', '')}\n{record.get('+', '')}".encode())


def _watch_again(engine: SpaceEngine, text: str) -> StandingQuery | None:
    """None if it cannot be watched any more: whoever wants it is told so when they ask."""
    try:
        return engine.watch(text)
    except SpaceError as error:
        log.warning("a watch is left out", extra={"space": engine.name, "watch": text[:200], "reason": str(error)})
        engine.lives += 1  # the lives after it are the same as before
        return None


def _epoch(path: Path, fresh: str) -> str:
    if path.exists():
        return path.read_text().strip()
    temporary = path.with_name("_epoch")
    temporary.write_text(fresh)
    temporary.rename(path)
    return fresh


def _gap(engine: SpaceEngine, version: int) -> SpaceError:
    return SpaceError(
        Fault.INTERNAL,
        f"the journal of space {engine.name!r} goes from version {engine.version} to {version}",
        hint="a file is missing: restore the folder from a backup",
    )


def _triples(text: str) -> list[Triple]:
    return [each.triple for each in parse(text.encode(), RdfFormat.N_TRIPLES)] if text else []


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
    engine.store.bulk_load(triples)
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
