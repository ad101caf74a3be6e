"""From a store file to a running broker: sessions, subscriptions, retained messages, wills, where they were."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.broker import wills
from tidegate.broker.durable import Durable, packet_identifier
from tidegate.broker.handing_on import ESTATE, hand_on_later, keep_estate
from tidegate.broker.hooks import LINK_CLIENT, LINK_USER
from tidegate.broker.index import Subscription
from tidegate.broker.message import Author, Message
from tidegate.broker.session import NEVER, RELEASED, Session
from tidegate.broker.store.errors import StoreError
from tidegate.broker.store.lock import Lock
from tidegate.broker.store.reader import Reader
from tidegate.broker.store.salvage import Salvage, salvage
from tidegate.broker.store.schema import connect, prepare, refuse_strangers
from tidegate.broker.store.settings import OnDamage
from tidegate.broker.store.store import Store
from tidegate.broker.wills import Will
from tidegate.flow.shared import ClientLoad
from tidegate.mqtt.topics import parse_shared
from tidegate.private import make_folder, tighten

if TYPE_CHECKING:
    from tidegate.broker.core import Core

log = logging.getLogger("tidegate.store")

WRITABLE = "name a folder with free space that you can write to with --data"
PROGRESS_EVERY = 100_000  # rows between two lines of progress
GRACE = 3.0  # seconds after a start in which members of groups come back before others get what they have
READ = (
    "SELECT sum(length(client_id)) FROM session",
    "SELECT sum(length(topic_filter)) FROM subscription",
    "SELECT sum(size + seq) FROM queue",
    "SELECT sum(packet_identifier) FROM inbound",
    "SELECT sum(length(m.payload) + length(m.topic)) FROM retained r JOIN message m ON m.id = r.message_id",
    "SELECT sum(length(payload)) FROM will",
)
SAVED = ".saved"  # ends the name of what was saved of a damaged file, until it has its name
CHECK_TIME = 1.5  # seconds of a start spent on looking for damage, enough for about 400 MB


class Damage(sqlite3.DatabaseError):
    """The file is not what was written."""


def open_file(path: Path, on_damage: OnDamage = OnDamage.RECOVER) -> tuple[Lock, Reader]:
    """Lock, make or upgrade the file, and read what a start needs to know of it.

    A damaged file is set aside under another name, never changed; the start goes on with what can be read of it.
    """
    if path.exists() and not path.is_file():
        raise StoreError(path, "is not a file", WRITABLE)
    try:
        make_folder(path.parent)
        tighten(path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", ".lock")))
        lock = Lock(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreError(path, f"{path.parent} is a file, not a folder", WRITABLE) from error
    except OSError as error:
        raise StoreError(path, error.strerror or str(error), WRITABLE) from error
    try:
        return lock, _open_whole(path, on_damage)
    except sqlite3.DatabaseError as error:
        lock.release()
        raise StoreError(path, str(error), WRITABLE) from error
    except BaseException:
        lock.release()
        raise


def _open_whole(path: Path, on_damage: OnDamage) -> Reader:
    replace_damaged(path)  # what an earlier start had no time for
    try:
        return _open(path)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        if on_damage is OnDamage.REFUSE:
            problem = f"is damaged: {' '.join(str(error).split())}"
            raise StoreError(path, problem, f"`tidegate store recover {path.parent}` saves what can be read") from error
        log.error("store file is damaged: reading what can be read", extra={"file": str(path), "error": str(error)})
        recover(path)
        return _open(path)


def recover(path: Path) -> tuple[Path, Salvage]:
    """Put what can be read of a damaged file in its place; gives where the damaged one is now. Take the lock before."""
    draft = path.with_name(path.name + ".salvage")
    for suffix in ("", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    outcome = salvage(path, draft)
    draft.rename(path.with_name(path.name + SAVED))
    aside = replace_damaged(path)
    assert aside is not None
    log.error("damaged store file was set aside", extra={"file": str(aside), "result": outcome.as_text()})
    return aside, outcome


def replace_damaged(path: Path) -> Path | None:
    """The second half of `recover`, which may be done again after a crash in it."""
    saved = path.with_name(path.name + SAVED)
    if not saved.exists():
        return None
    aside = set_aside(path)
    saved.rename(path)
    return aside


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    if isinstance(error, Damage) or getattr(error, "sqlite_errorname", "") in (
        "SQLITE_CORRUPT",
        "SQLITE_NOTADB",
    ):
        return True
    return any(text in str(error) for text in ("malformed", "not a database"))


def _create(path: Path) -> None:
    """A new file appears whole or not at all, so an empty one is never the trace of a crash, but of damage."""
    draft = path.with_name(path.name + ".new")
    for suffix in ("", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    db = connect(draft)
    try:
        prepare(db, draft)
    finally:
        db.close()  # the last connection leaves no log
    draft.rename(path)


def _look(path: Path) -> None:
    """Before anything is written: a connection for writing changes the journal mode of any database, and would bring
    the log into a file that is damaged."""
    db = connect(path, read_only=True)
    try:
        refuse_strangers(db, path)
        _check(db)
    finally:
        db.close()


def _check(db: sqlite3.Connection) -> None:
    """Look for damage as long as a start may take; what is larger is looked at by `tidegate store check`."""
    timer = threading.Timer(CHECK_TIME, db.interrupt)
    timer.start()
    try:
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
            raise
        log.info("store is too large to be checked at the start; `tidegate store check` does it")
        _read_once(db)
        return
    finally:
        timer.cancel()
        timer.join()
    if found != "ok":
        raise Damage(" ".join(str(found).split()))


def _read_once(db: sqlite3.Connection) -> None:
    """All that a start reads, so that damage there is found before the broker has half of it."""
    for query in READ:
        db.execute(query).fetchone()


def _open(path: Path) -> Reader:
    if not path.exists():
        log_file = path.with_name(path.name + "-wal")
        if log_file.exists() and log_file.stat().st_size:
            # It belongs to a file that is gone, and SQLite would take it for the log of the new one.
            log.error("a log without its store was set aside", extra={"file": str(set_aside(path))})
        _create(path)
    if not path.stat().st_size:
        raise Damage("the file is empty")
    _look(path)
    db = connect(path)
    try:
        prepare(db, path)
        # A log left by a crash is brought into the file here, once, rather than read again by every query.
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()
    reader = Reader(path)
    try:
        reader.load_shared()
    except BaseException:
        reader.close()
        raise
    return reader


def set_aside(path: Path) -> Path:
    """Rename a store file and its log so that they can be examined; gives the new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while any(aside.with_name(aside.name + suffix).exists() for suffix in ("", "-wal")):
        aside = path.with_name(f"{path.name}.damaged-{stamp}.{number}")
        number += 1
    for suffix in ("", "-wal", "-shm"):
        extra = path.with_name(path.name + suffix)
        if extra.exists():
            extra.rename(aside.with_name(aside.name + suffix))
    return aside


def restore(core: Core, store: Store, reader: Reader) -> None:
    """Fill the core. Sessions that expired while the broker was down are ended, overdue wills are published."""
    started = time.monotonic()
    now = store.now
    by_id: dict[int, Session] = {}
    unsure: set[int] = set()  # connected until the end: nobody knows what was sent to them last
    for sid, client_id, user, expiry, version, gone_at, sent_seq in reader.sessions():
        session = by_id[sid] = Session(core, client_id)
        session.belong_to(user)
        session.is_link = core.cluster is not None and user == LINK_USER and client_id.startswith(LINK_CLIENT)
        session.expiry = expiry
        session.version = version
        durable = session.durable = Durable(store, sid)
        durable.sent_seq = sent_seq
        durable.next_seq = sent_seq + 1
        # Who was connected when the broker went down is gone since now: it had no chance to come back before.
        durable.gone_at = now if gone_at is None else gone_at
        if gone_at is None:
            unsure.add(sid)
        if client_id.startswith(ESTATE):
            session.load = ClientLoad(core.now())
        else:
            core.sessions[client_id] = session
        _progress("sessions", len(by_id))
    _restore_subscriptions(core, by_id, reader)
    for sid, count, size, first, last in reader.queues():
        owner = by_id.get(sid)
        if owner is not None and owner.durable is not None:
            owner.durable.set_tail(count, size, first - 1, last)
            if sid in unsure:
                owner.durable.kept_seq = last
            core.counters.queued_messages += count
            owner.waits(size)
    for sid, seq, mid, size in reader.released():
        owner = by_id.get(sid)
        if owner is not None and owner.durable is not None:
            owner.inflight[packet_identifier(seq)] = (mid, RELEASED, seq)
            owner.durable.tail -= 1
            owner.durable.tail_bytes -= size
            core.counters.queued_messages -= 1
            owner.waits(-size)
    for sid, identifier in reader.inbound():
        owner = by_id.get(sid)
        if owner is not None:
            if owner.inbound is None:
                owner.inbound = set()
            owner.inbound.add(identifier)
    for count, row in enumerate(reader.retained(), 1):
        mid, topic, payload, qos, properties, expires, publisher, author = row
        message = Message(topic, payload, qos, True, properties, store.loop_time(expires), publisher)
        message.author = Author.from_text(author)
        message.mid = mid
        core.retained.restore(message)
        _progress("retained messages", count)
    _restore_wills(core, store, reader)
    for session in by_id.values():
        _schedule(core, session, now)
    if by_id or len(core.retained):
        log.info(
            "store recovered",
            extra={
                "sessions": len(by_id),
                "subscriptions": core.index.count,
                "retained": len(core.retained),
                "queued": core.counters.queued_messages,
                "seconds": round(time.monotonic() - started, 2),
            },
        )


def _schedule(core: Core, session: Session, now: float) -> None:
    """When it expires, and when other members of its groups may have what it has."""
    assert session.durable is not None
    gone_at = session.durable.gone_at
    due = core.now() + gone_at + session.expiry - now
    if session.client_id.startswith(ESTATE):
        keep_estate(session, max(due, core.now() + GRACE))
        return
    if session.expiry != NEVER:
        if due <= core.now():  # before anybody can connect to it
            core.loop.call_soon(core.expire, session, session.epoch)
        else:
            core.alarms.at(due, partial(core.expire, session, session.epoch))
    wait = core.features.shared_wait
    session.left_at = core.now() + max(gone_at - now, GRACE - wait)
    if session.load is not None:  # a member, which may be given something before anybody is back
        core.alarms.at(session.left_at + wait, partial(hand_on_later, session, session.epoch))


def _progress(what: str, count: int) -> None:
    if count % PROGRESS_EVERY == 0:
        log.info("recovering", extra={what.replace(" ", "_"): count})


def _restore_subscriptions(core: Core, by_id: dict[int, Session], reader: Reader) -> None:
    for count, row in enumerate(reader.subscriptions(), 1):
        sid, name, qos, no_local, retain_as_published, identifier = row
        session = by_id.get(sid)
        if session is None:
            continue
        shared = parse_shared(name.decode())
        subscription = Subscription(
            session,
            shared[1].encode() if shared else name,
            qos,
            bool(no_local),
            bool(retain_as_published),
            identifier,
            shared[0] if shared else "",
        )
        session.subscribe(name, subscription)
        core.index.add(subscription)
        _progress("subscriptions", count)


def _restore_wills(core: Core, store: Store, reader: Reader) -> None:
    """A will whose client was connected starts its delay now; one of a session that is no more goes out at once."""
    for client_id, topic, payload, qos, retain, properties, delay, expiry, due, author in reader.wills():
        message = Message(topic, payload, qos, bool(retain), properties, None, client_id)
        message.author = Author.from_text(author)
        will = Will(message=message, delay=delay, expiry=expiry)
        session = core.sessions.get(client_id)
        if session is None:
            core.loop.call_soon(wills.publish_stored, core, client_id, will)
            continue
        session.set_will(will)
        at = core.now() + delay if due is None else store.loop_time(due)
        assert at is not None
        if due is None:
            store.save_will(client_id, will, at)
        if at <= core.now():  # due already: a client that comes back at once is too late to call it off
            core.loop.call_soon(wills.publish_delayed, session, session.epoch)
        else:
            core.alarms.at(at, partial(wills.publish_delayed, session, session.epoch))
