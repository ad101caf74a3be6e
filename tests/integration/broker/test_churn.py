"""Hours of coming and going squeezed into seconds: afterwards the broker holds what it held before.

`TIDEGATE_CHURN_SECONDS=60` makes the run as long as one wants; the default keeps it short enough for every day.
"""

import asyncio
import gc
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.integration.broker.churn_traffic import ACTS, PREFIX, Act, churn
from tidegate.broker import Features, Limits, Listener
from tidegate.broker.connection import CloseReason, Connection
from tidegate.broker.core import Core
from tidegate.broker.handshake import Handshake
from tidegate.broker.index import MAX_ROUTES, Subscription, Target
from tidegate.broker.message import Message
from tidegate.broker.session import Session
from tidegate.broker.shared import SharedGroup
from tidegate.mqtt import Property, Publish
from tidegate.net.tls import server_context
from tidegate.net.websocket import WebSocketOptions, WebSocketServer
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority
from tidegate.testing.raw import RawClient

SECONDS = float(os.environ.get("TIDEGATE_CHURN_SECONDS", "8"))
WARM_UP = max(2.0, SECONDS / 4)
SETTLE = 20.0  # seconds; sessions, wills and keep-alive of the traffic are over in three
COUNTED = (Connection, Handshake, Message, Session, SharedGroup, Subscription, Target, WebSocketServer)

UNREST = 2_000_000  # bytes an allocator may keep between two rounds
PER_ACT = 500  # bytes; one kept Connection is 2000
LONG = 4_000_000_000  # a session expiry interval of 126 years

pytestmark = pytest.mark.timeout(120 + 3 * SECONDS)


def wait_until(is_true: Callable[[], bool], seconds: float = SETTLE) -> bool:
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Watched:
    """A broker on this process's thread, and everything it holds."""

    def __init__(self, running: BrokerThread) -> None:
        self.running = running
        # Kept alive, so that no newer object can have the identity of one of them.
        self._older = {id(each): each for each in gc.get_objects() if type(each) in COUNTED}
        self.ports = dict(zip(("tcp", "ws", "tls"), (e.port for e in running.broker.endpoints), strict=True))

    @property
    def core(self) -> Core:
        return self.running.broker.core

    def objects(self) -> dict[str, int]:
        """Living objects by type, without those of other brokers that run in this process."""

        def is_ours(each: object) -> bool:
            if isinstance(each, Message) and not each.topic.startswith(PREFIX.encode()):
                return False  # others go on publishing to $SYS
            return id(each) not in self._older

        # By exact type: `isinstance` would ask weak proxies, whose objects may be gone.
        found = Counter(
            type(each).__name__ for each in gc.get_objects() if type(each) in COUNTED and is_ours(each)
        )
        return {kind.__name__: found[kind.__name__] for kind in COUNTED}

    def holdings(self) -> dict[str, int]:
        """What can grow, as numbers that must come back; read on the broker's loop."""
        core = self.core
        index = core.index
        return {
            "sessions": len(core.sessions),
            "connections": len(core.connections),
            "handshakes": len(core.door),
            "partial": len(core.unfinished),
            "blocked": len(core.blocked),
            "closing": len(core.closing),
            "alarms": len(core.alarms),
            "keep_alive": len(core.keep_alive),
            "keep_alive_slots": len(core.keep_alive._slots),
            "dirty": len(core.dirty),
            "queued_bytes": core.queued_bytes,
            "queued_messages": core.counters.queued_messages,
            "full_sessions": len(core.full),
            "core_tasks": len(core.tasks),
            "loop_tasks": len(asyncio.all_tasks()) - 2,  # not the thread's own, nor the one that asks
            "subscriptions": index.count,
            "shared_subscriptions": index.shared_count,
            "exact_filters": len(index._exact),
            "filter_tree": index._tree.count,
            "groups": len(index.groups),
            "retained": len(core.retained),
            "retained_bytes": core.retained.size_bytes,
            "retained_tree": core.retained._tree.count,
            "listener_connections": sum(each.connections for each in self.running.broker._listeners),
        } | self.objects()

    def settled(self, *, collect: bool = False, allowed: int = 0, seconds: float = SETTLE) -> dict[str, int]:
        """The holdings over `allowed` when time has done what it can: empty if the broker forgets what it should.

        With `collect`, what only cycles keep alive counts as forgotten.
        """

        def left() -> dict[str, int]:
            if collect:
                gc.collect()
            return {name: count for name, count in self.holdings().items() if count > allowed}

        wait_until(lambda: not self.running.call(left), seconds)
        return self.running.call(left)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    issued = make_authority(tmp_path).issue("server")
    listeners = [
        Listener(port=0),
        Listener(port=0, websocket=WebSocketOptions()),
        Listener(port=0, tls=server_context(issued.certificate, issued.key)),
    ]
    limits = Limits(connection_rate=0, connect_timeout=2, packet_timeout=2, write_timeout=2)
    features = Features(sys_interval=0, persistent_session_expiry=1)
    with BrokerThread(listeners=listeners, limits=limits, features=features) as running:
        yield Watched(running)


@contextmanager
def without_cycle_collector() -> Iterator[None]:
    """Only reference counts free anything; a node runs nearly so, because it collects cycles very rarely."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_after_churn_the_broker_holds_nothing_that_it_did_not_hold_before(watched: Watched) -> None:
    assert watched.settled() == {}
    churn(watched.ports, WARM_UP, seed=1)
    played = churn(watched.ports, SECONDS, seed=2)
    assert set(played) == {act.__name__ for act, _, _ in ACTS}
    assert watched.settled(collect=True) == {}
    statistics = watched.running.statistics()
    assert statistics["routes"] <= MAX_ROUTES
    assert statistics["closes"].get(CloseReason.SERVER_ERROR, 0) == 0


@pytest.mark.parametrize(
    ("act", "name"),
    [pytest.param(act, name, id=act.__name__) for act, name, _ in ACTS],
)
def test_what_a_client_leaves_is_freed_without_the_cycle_collector(
    watched: Watched, act: Act, name: str
) -> None:
    with without_cycle_collector():
        for number in range(10):
            act(watched.ports[name], Random(number), f"{act.__name__}-{number}")
        assert watched.settled(seconds=8) == {}


# Below, cleaning up late and in bulk is fine; what must not be is growth with every connection, for a day or more.
ROUNDS = 300
SOME = 100


def test_a_closed_connection_is_forgotten_even_if_its_keep_alive_is_long(watched: Watched) -> None:
    for _ in range(ROUNDS):
        with RawClient(watched.ports["tcp"]) as client:
            client.connect(keep_alive=65_535)
            client.disconnect()
    assert watched.settled(allowed=SOME, seconds=5) == {}


def test_a_session_that_comes_and_goes_does_not_pile_up_alarms(watched: Watched) -> None:
    properties = {Property.SESSION_EXPIRY_INTERVAL: LONG}
    for _ in range(ROUNDS):
        with RawClient(watched.ports["tcp"]) as client:
            client.connect("flapping", clean_start=False, keep_alive=0, properties=properties)
            client.disconnect()
    assert watched.settled(allowed=SOME, seconds=5) == {}


def test_a_session_that_was_replaced_is_freed_although_it_was_to_live_long(watched: Watched) -> None:
    for _ in range(ROUNDS):
        with RawClient(watched.ports["tcp"]) as client:
            client.connect("anew", keep_alive=0, properties={Property.SESSION_EXPIRY_INTERVAL: LONG})
            client.subscribe(f"{PREFIX}/x", qos=1)
    assert watched.settled(allowed=SOME, seconds=5) == {}


class Served:
    """A broker process, and its memory."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "churn.toml"
        settings.write_text(
            "[limits]\nconnection_rate = 0.0\nconnect_timeout = 2.0\npacket_timeout = 2.0\nwrite_timeout = 2.0\n"
            "[features]\npersistent_session_expiry = 1\nsys_interval = 1.0\n"
        )
        command = [sys.executable, "-m", "tidegate", "serve", "-c", str(settings), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--websocket-port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        found = re.search(r"mqtt://127\.0\.0\.1:(\d+).*ws://127\.0\.0\.1:(\d+)", ready)
        assert found, ready
        self.ports = {"tcp": int(found[1]), "ws": int(found[2])}

    def wait_quiet(self) -> None:
        """Until the broker itself says that only we are connected and nothing of the traffic is left."""
        with RawClient(self.ports["tcp"]) as client:
            client.connect("quiet")
            # A wildcard subscription also empties the cache of routes, whose size is bounded, not constant.
            client.subscribe("$SYS/#")
            values: dict[str, bytes] = {}
            end = time.monotonic() + SETTLE

            def is_quiet() -> bool:
                names = ("clients/total", "subscriptions/count")
                return [values.get(f"$SYS/broker/{name}") for name in names] == [b"1", b"1"]

            while not is_quiet():
                message = client.take(Publish, timeout=end - time.monotonic())
                values[message.topic] = message.payload

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=SETTLE)


def test_after_churn_the_memory_of_a_broker_process_is_near_where_it_was(tmp_path: Path) -> None:
    served = Served(tmp_path)
    growth: list[int] = []
    try:
        churn(served.ports, WARM_UP, seed=3)
        served.wait_quiet()
        for seed in (4, 5, 6):
            before = served.memory_bytes()
            played = churn(served.ports, SECONDS / 2, seed=seed)
            served.wait_quiet()
            growth.append(served.memory_bytes() - before)
            # An allocator that is not warm yet grows once; a leak grows in every round.
            if growth[-1] < UNREST + PER_ACT * played.total():
                return
    finally:
        served.close()
    pytest.fail(f"memory grew by {growth} bytes in rounds of about {played.total()} acts")
