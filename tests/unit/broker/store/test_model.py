"""The store against plain dictionaries: any changes, commits anywhere, crashes anywhere.

The event loop runs only in `commit`, so everything noted since the last one is lost in a crash, and everything before
must be there. A crash is what a kill leaves: the files as they are, opened by a new store.
"""

import asyncio
import copy
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidegate.broker.core import Core
from tidegate.broker.durable import Durable, packet_identifier
from tidegate.broker.hooks import Hooks
from tidegate.broker.index import Subscription
from tidegate.broker.message import Message
from tidegate.broker.session import NEVER, Session
from tidegate.broker.settings import Features, Limits
from tidegate.broker.store.maintenance import Findings, check
from tidegate.broker.store.reader import Reader
from tidegate.broker.store.recovery import open_file, restore
from tidegate.broker.store.settings import StoreSettings
from tidegate.broker.store.store import FILE_NAME, Store
from tidegate.broker.wills import Will

CLIENTS = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from([b"t", b"t/u", b"t/u/v"])
FILTERS = st.sampled_from([b"t", b"t/#", b"+/u", b"$share/g/t/#"])
PAYLOADS = st.binary(min_size=1, max_size=40)
IDENTIFIERS = st.lists(st.integers(1, 268_435_455), max_size=2).map(tuple)
DEADLINE = 10.0
FAR = 1e6  # seconds until a will is due: not during a test


@dataclass
class Kept:
    """One session as the model has it."""

    subscriptions: dict[bytes, tuple[int, bool, bool, int]] = field(default_factory=dict)
    # seq: number of the message, QoS, retain flag, subscription identifiers, released
    queue: dict[int, tuple[int, int, bool, tuple[int, ...], bool]] = field(default_factory=dict)
    inbound: set[int] = field(default_factory=set)
    next_seq: int = 1


@dataclass
class Model:
    """What a store must give back."""

    sessions: dict[str, Kept] = field(default_factory=dict)
    messages: dict[int, tuple[bytes, bytes, int]] = field(default_factory=dict)  # topic, payload, QoS
    retained: dict[bytes, int] = field(default_factory=dict)
    wills: dict[str, bytes] = field(default_factory=dict)

    def references(self) -> set[int]:
        queued = {entry[0] for kept in self.sessions.values() for entry in kept.queue.values()}
        return queued | set(self.retained.values())


class StoreMachine(RuleBasedStateMachine):
    """Each step is one change; what the broker keeps in memory beside the store (Session, Retained) is real."""

    @initialize()
    def start(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="tidegate-model-"))
        self.lives = 0
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.committed = Model()
        self._open(self.scratch / "0")

    def _open(self, folder: Path) -> None:
        self.folder = folder
        self.core = Core(self.loop, Limits(), Features(), Hooks(), Random(1), "model")
        lock, reader = open_file(folder / FILE_NAME)
        self.store = Store(folder, StoreSettings())
        self.store.open(self.loop, reader, lock)
        self.core.store = self.store
        restore(self.core, self.store, reader)
        self.core.retained.watchers.append(self.store.retain)
        self.alive: dict[int, Message] = {}

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self._settle(lambda: self.store.is_idle)
            self.restart()
            findings = check_stopped(self)
            assert findings.problems == []
            assert findings.orphans == 0
        finally:
            self.core.close()
            self.store.close(DEADLINE)
            self.loop.close()
            shutil.rmtree(self.scratch)

    # -- sessions -------------------------------------------------------------------------------------------

    def session(self, client: str) -> tuple[Session, Kept]:
        """The session of a client, made if there is none."""
        if client not in self.model.sessions:
            session = self.core.sessions[client] = Session(self.core, client)
            session.expiry = NEVER
            session.durable = Durable(self.store, self.store.new_session())
            self.store.save_session(session, is_connected=True)
            self.model.sessions[client] = Kept()
        return self.core.sessions[client], self.model.sessions[client]

    @rule(client=CLIENTS, is_connected=st.booleans())
    def save_session(self, client: str, is_connected: bool) -> None:
        session, _ = self.session(client)
        self.store.save_session(session, is_connected=is_connected)

    @rule(client=CLIENTS, data=st.data())
    def end_session(self, client: str, data: st.DataObject) -> None:
        """Entries in memory are given up one by one, those on disk by the store."""
        session, kept = self.session(client)
        in_memory = data.draw(st.integers(0, len(kept.queue)))
        for seq in list(kept.queue)[:in_memory]:
            self.store.done(session, kept.queue[seq][0], seq)
        self.store.end_session(session)
        if client in self.model.wills:
            self.store.save_will(client, None)
            del self.model.wills[client]
        del self.core.sessions[client]
        del self.model.sessions[client]

    @rule(client=CLIENTS, name=FILTERS, qos=st.integers(0, 2), flags=st.tuples(st.booleans(), st.booleans()))
    def subscribe(self, client: str, name: bytes, qos: int, flags: tuple[bool, bool]) -> None:
        session, kept = self.session(client)
        self.store.save_subscription(session, name, Subscription(session, name, qos, *flags, 7))
        kept.subscriptions[name] = (qos, *flags, 7)

    @rule(client=CLIENTS, name=FILTERS)
    def unsubscribe(self, client: str, name: bytes) -> None:
        session, kept = self.session(client)
        self.store.save_subscription(session, name, None)
        kept.subscriptions.pop(name, None)

    # -- queues ---------------------------------------------------------------------------------------------

    def _put(
        self, client: str, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        session, kept = self.session(client)
        seq = kept.next_seq
        kept.next_seq += 1
        self.store.enqueue(session, (message, qos, retain, identifiers, seq))
        kept.queue[seq] = (message.mid, qos, retain, identifiers, False)
        self._know(message)

    def _know(self, message: Message) -> None:
        self.model.messages[message.mid] = (message.topic, message.payload, message.qos)
        self.alive[message.mid] = message

    @rule(
        clients=st.sets(CLIENTS, min_size=1), topic=TOPICS, payload=PAYLOADS, qos=st.sampled_from([1, 2]),
        retain=st.booleans(), identifiers=IDENTIFIERS,
    )  # fmt: skip
    def publish(
        self,
        clients: set[str],
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
    ) -> None:
        message = Message(topic, payload, qos, retain, publisher="p")
        if retain:
            self._retain(message)
        for client in sorted(clients):
            self._put(client, message, qos, retain, identifiers)

    @precondition(lambda self: self.model.retained)
    @rule(client=CLIENTS, data=st.data())
    def deliver_retained(self, client: str, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(sorted(self.model.retained)))
        message = self.core.retained.get(topic)
        assert message is not None
        self._put(client, message, 1, True, ())

    def _entries(self) -> list[tuple[str, int]]:
        return [(client, seq) for client, kept in self.model.sessions.items() for seq in kept.queue]

    @precondition(lambda self: self._entries())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        client, seq = data.draw(st.sampled_from(self._entries()))
        entry = self.model.sessions[client].queue.pop(seq)
        self.store.done(self.core.sessions[client], entry[0], seq)

    @precondition(lambda self: self._entries())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        client, seq = data.draw(st.sampled_from(self._entries()))
        queue = self.model.sessions[client].queue
        if queue[seq][1] == 2:
            self.store.released(self.core.sessions[client], seq)
            queue[seq] = (*queue[seq][:4], True)

    @rule(client=CLIENTS, number=st.integers(1, 4), is_there=st.booleans())
    def receive(self, client: str, number: int, is_there: bool) -> None:
        session, kept = self.session(client)
        self.store.received(session, number, is_there)
        (kept.inbound.add if is_there else kept.inbound.discard)(number)

    # -- retained messages and wills ------------------------------------------------------------------------

    def _retain(self, message: Message) -> None:
        self.core.retained.keep(message)
        if message.payload:
            self.model.retained[message.topic] = message.mid
            self._know(message)
        else:
            self.model.retained.pop(message.topic, None)

    @rule(topic=TOPICS, payload=st.one_of(st.just(b""), PAYLOADS), qos=st.integers(0, 2))
    def retain(self, topic: bytes, payload: bytes, qos: int) -> None:
        self._retain(Message(topic, payload, qos, True, publisher="p"))

    @rule(client=CLIENTS, payload=st.one_of(st.none(), PAYLOADS))
    def set_will(self, client: str, payload: bytes | None) -> None:
        self.session(client)
        if payload is None:
            self.store.save_will(client, None)
            self.model.wills.pop(client, None)
        else:
            will = Will(message=Message(b"w", payload, 1, publisher=client), delay=int(FAR))
            self.store.save_will(client, will, self.loop.time() + FAR)
            self.model.wills[client] = payload

    # -- commits and crashes --------------------------------------------------------------------------------

    def _settle(self, condition: Callable[[], bool]) -> None:
        async def settle() -> None:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    await asyncio.sleep(0.001)

        self.loop.run_until_complete(settle())

    @rule()
    def commit(self) -> None:
        """A change that somebody waits for takes everything before it to the disk."""
        self.subscribe("a", b"clock", 1, (False, False))
        commits = self.store.commits
        self._settle(lambda: self.store.commits > commits)
        self.committed = copy.deepcopy(self.model)

    @rule()
    def crash(self) -> None:
        """Open what is on disk now; the old store goes on writing where nobody looks."""
        self.lives += 1
        copied = self.scratch / str(self.lives)
        shutil.copytree(self.folder, copied)
        self.core.close()
        self.store.close(DEADLINE)
        shutil.rmtree(self.folder)
        self.model = copy.deepcopy(self.committed)
        self._compare(copied, self.model)
        self._open(copied)
        for client, kept in self.model.sessions.items():
            durable = self.core.sessions[client].durable
            assert durable is not None
            assert durable.next_seq > max(kept.queue, default=0)
            kept.next_seq = durable.next_seq

    @rule()
    def restart(self) -> None:
        """A proper end writes everything."""
        self.core.close()
        self.store.close(DEADLINE)
        self.committed = copy.deepcopy(self.model)
        self._compare(self.folder, self.model)
        self._open(self.folder)

    # -- comparison -----------------------------------------------------------------------------------------

    def _compare(self, folder: Path, model: Model) -> None:
        reader = Reader(folder / FILE_NAME)
        try:
            assert _read(reader) == _expected(model)
        finally:
            reader.close()

    @invariant()
    def recovered_state_is_the_model(self) -> None:
        """What a start put into the broker's memory agrees with the model as long as it is fresh."""
        if not hasattr(self, "core"):
            return
        assert self.core.sessions.keys() == self.model.sessions.keys()
        assert set(self.model.retained) == {m.topic for m in self.core.retained.match(b"#")}


def check_stopped(machine: StoreMachine) -> Findings:
    """Check a copy: the store itself is in use."""
    copied = machine.scratch / "checked"
    machine._settle(lambda: machine.store.is_idle)
    shutil.copytree(machine.folder, copied)
    return check(copied)


def _read(reader: Reader) -> dict[str, Any]:
    clients = {row[0]: row[1] for row in reader.sessions()}
    queues: dict[str, Any] = {client: {} for client in clients.values()}
    released: dict[str, Any] = {client: {} for client in clients.values()}
    for sid, client in clients.items():
        for row in reader.queue_page(sid, 0, 10_000, 10_000_000):
            seq, mid, qos, retain, text, topic, payload, message_qos = row[:8]
            identifiers = tuple(map(int, text.split()))
            queues[client][seq] = (mid, qos, bool(retain), identifiers, topic, payload, message_qos)
    for sid, seq, mid, _ in reader.released():
        released[clients[sid]][seq] = mid
    return {
        "subscriptions": {
            (clients[sid], name): (qos, bool(no_local), bool(as_published), identifier)
            for sid, name, qos, no_local, as_published, identifier in reader.subscriptions()
        },
        "queues": queues,
        "released": released,
        "inbound": {(clients[sid], number) for sid, number in reader.inbound()},
        "retained": {row[1]: (row[0], row[2], row[3]) for row in reader.retained()},
        "wills": {row[0]: row[2] for row in reader.wills()},
    }


def _expected(model: Model) -> dict[str, Any]:
    sessions = model.sessions
    return {
        "subscriptions": {
            (client, name): row
            for client, kept in sessions.items()
            for name, row in kept.subscriptions.items()
        },
        "queues": {
            client: {
                seq: (mid, qos, retain, identifiers, *model.messages[mid])
                for seq, (mid, qos, retain, identifiers, is_released) in kept.queue.items()
                if not is_released
            }
            for client, kept in sessions.items()
        },
        "released": {
            client: {seq: entry[0] for seq, entry in kept.queue.items() if entry[4]}
            for client, kept in sessions.items()
        },
        "inbound": {(client, number) for client, kept in sessions.items() for number in kept.inbound},
        "retained": {
            topic: (mid, model.messages[mid][1], model.messages[mid][2])
            for topic, mid in model.retained.items()
        },
        "wills": dict(model.wills),
    }


def test_packet_identifiers_follow_from_sequence_numbers_and_are_never_zero() -> None:
    assert [packet_identifier(seq) for seq in (1, 65_535, 65_536, 131_071)] == [1, 65_535, 1, 1]


TestStoreAgainstDictionaries = StoreMachine.TestCase
TestStoreAgainstDictionaries.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
