"""Nobody can make the node keep more than its bound, whatever they send; and others get on meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.attack.victim import Victim
from bench.attack.witness import Witness
from tests.attack.conftest import Dial, Until
from tests.crash.process import stalled_disk
from tests.resilience.support import wait_metric
from tidegate.mqtt import (
    Connect,
    Packet,
    Properties,
    Property,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Will,
    encode_packet,
)
from tidegate.settings import load_settings
from tidegate.testing import NodeThread

BOUND = 100_000_000  # a node that does nothing has 60 MB
OVER = 1.1  # what the promise allows
WORST_PING = 0.5
RATE = 15_000_000  # bytes a second of an attack: more than is promised
SECONDS = 3.0  # of an attack that does not end by itself
KEPT: Properties = {Property.SESSION_EXPIRY_INTERVAL: 1_000}
LONG = "x" * 60_000


class Attacker:
    """Any number of connections that send no faster than the rate, read all answers, or none."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._port = port
        self._stack = stack
        self._began = time.monotonic()
        self._sent = 0

    @property
    def has_time(self) -> bool:
        return time.monotonic() - self._began < SECONDS

    def connect(
        self,
        client_id: str,
        properties: Properties | None = None,
        will: Will | None = None,
        *,
        reads: bool = True,
        clean_start: bool = True,
    ) -> socket.socket | None:
        """None if the node refuses."""
        sock = self._stack.enter_context(socket.create_connection(("127.0.0.1", self._port), timeout=2.0))
        self.send(
            sock,
            Connect(
                client_id=client_id, clean_start=clean_start, keep_alive=0, properties=properties or {}, will=will
            ),
        )
        answer = sock.recv(1_000)
        if len(answer) < 4 or answer[3]:
            return None
        if reads:
            threading.Thread(target=_read, args=(sock,), daemon=True).start()
        return sock

    def many(self, count: int, name: str = "a", *, reads: bool = True) -> list[socket.socket]:
        """As many as are let in."""
        found = [self.connect(f"{name}{number}", reads=reads) for number in range(count)]
        return [sock for sock in found if sock is not None]

    def send(self, sock: socket.socket, *parts: Packet | bytes) -> bool:
        """False if the node does not take it."""
        data = b"".join(part if isinstance(part, bytes) else encode_packet(part, 5) for part in parts)
        self._sent += len(data)
        time.sleep(max(0.0, self._began + self._sent / RATE - time.monotonic()))
        try:
            sock.sendall(data)
        except OSError:
            return False
        return True


def _read(sock: socket.socket) -> None:
    try:
        while sock.recv(65_536):
            pass
    except OSError:
        pass


def _subscribe(*topic_filters: str, qos: int = 0) -> Subscribe:
    wanted = [Subscription(topic_filter=each, qos=qos) for each in topic_filters]
    return Subscribe(packet_identifier=1, subscriptions=wanted)


def _retained(topic: str, size: int, qos: int = 0) -> Publish:
    return Publish(topic=topic, payload=bytes(size), retain=True, qos=qos, packet_identifier=1 if qos else None)


# -- what can be kept ---------------------------------------------------------------------------------------


def large_retained_messages(attacker: Attacker) -> None:
    sock = attacker.connect("a")
    assert sock is not None
    for number in range(2_000):
        attacker.send(sock, _retained(f"t/{number}", 60_000))


def small_retained_messages(attacker: Attacker) -> None:
    sock = attacker.connect("a")
    assert sock is not None
    for number in range(40):
        attacker.send(sock, *(_retained(f"t/{number}/{each}", 1) for each in range(5_000)))


def retained_messages_at_qos_1(attacker: Attacker) -> None:
    sock = attacker.connect("a")
    assert sock is not None
    number = 0
    while attacker.send(sock, _retained(f"t/{number}", 60_000, qos=1)) and attacker.has_time:
        number += 1


def retained_messages_that_grow(attacker: Attacker) -> None:
    """Topics that are there already get larger messages."""
    sock = attacker.connect("a")
    assert sock is not None
    for size in (1, 10_000, 40_000):
        for number in range(2_000):
            attacker.send(sock, _retained(f"t/{number}", size))


def long_filters(attacker: Attacker) -> None:
    for sock in attacker.many(10):
        for number in range(100):
            attacker.send(sock, _subscribe(f"{number}/{LONG}"))


def short_filters(attacker: Attacker) -> None:
    for name, sock in enumerate(attacker.many(30)):
        attacker.send(sock, *(_subscribe(*(f"{name}/{part}/{n}" for n in range(900))) for part in range(10)))


def filters_of_many_levels(attacker: Attacker) -> None:
    for name, sock in enumerate(attacker.many(10)):
        for number in range(20):
            attacker.send(sock, _subscribe(*(f"+/{name}/{number}/{n}{'/+' * 100}/#" for n in range(100))))


def groups(attacker: Attacker) -> None:
    for name, sock in enumerate(attacker.many(30)):
        attacker.send(sock, *(_subscribe(*(f"$share/g{n}/{name}/{part}" for n in range(900))) for part in range(5)))


def wills(attacker: Attacker) -> None:
    delayed: Properties = {Property.WILL_DELAY_INTERVAL: 1_000, Property.USER_PROPERTY: [("a", LONG)]}
    for number in range(1_500):
        sock = attacker.connect(f"a{number}", KEPT, Will(topic="w", payload=bytes(60_000), properties=delayed))
        if sock is None:
            return
        sock.close()


def wills_of_sessions_that_are_there(attacker: Attacker) -> None:
    for number in range(1_000):
        sock = attacker.connect(f"a{number}", KEPT)
        assert sock is not None
        sock.close()
    wills(attacker)


def sessions(attacker: Attacker) -> None:
    number = 0
    while attacker.has_time and (sock := attacker.connect("x" * 900 + str(number), KEPT)) is not None:
        sock.close()
        number += 1


def queues(attacker: Attacker) -> None:
    """Sessions that are away, and messages for all of them."""
    for number in range(50):
        sock = attacker.connect(f"a{number}", KEPT)
        if sock is not None:
            attacker.send(sock, _subscribe("q", qos=1))
    sock = attacker.connect("p")
    while sock is not None and attacker.has_time:
        if not attacker.send(sock, Publish(topic="q", payload=bytes(60_000), qos=1, packet_identifier=1)):
            return


# -- what is on its way -------------------------------------------------------------------------------------


def packets_that_are_never_complete(attacker: Attacker) -> None:
    socks = attacker.many(200)
    for sock in socks:
        attacker.send(sock, b"\x30\xff\xff\x3e\x00\x01a")  # of 1 032 191 bytes
    for _ in range(10):
        for sock in socks:
            attacker.send(sock, bytes(60_000))


def topic_aliases(attacker: Attacker) -> None:
    socks = attacker.many(100)
    for alias in range(1, 20):
        for sock in socks:
            attacker.send(sock, Publish(topic=f"t/{alias}/{LONG}", properties={Property.TOPIC_ALIAS: alias}))


def readers_that_do_not_read(attacker: Attacker) -> None:
    for sock in attacker.many(20, reads=False):
        attacker.send(sock, _subscribe("q"))
    sock = attacker.connect("p")
    assert sock is not None
    while attacker.has_time:
        attacker.send(sock, Publish(topic="q", payload=bytes(60_000)))


def readers_that_do_not_acknowledge(attacker: Attacker) -> None:
    for number, sock in enumerate(attacker.many(20)):
        attacker.send(sock, _subscribe(f"q/{number}", qos=1))
    sock = attacker.connect("p")
    assert sock is not None
    number = 0
    while attacker.has_time:
        number += 1
        message = Publish(topic=f"q/{number % 20}", payload=bytes(50_000), qos=1, packet_identifier=number % 60_000 + 1)
        if not attacker.send(sock, message):
            return


def retained_messages_for_readers_that_do_not_read(attacker: Attacker) -> None:
    socks = attacker.many(30, reads=False)
    sock = attacker.connect("p")
    assert sock is not None
    for number in range(400):
        attacker.send(sock, _retained(f"t/{number}", 60_000))
    for each in socks:
        attacker.send(each, _subscribe("t/#", qos=1), _subscribe("t/+"), _subscribe("#"))
    time.sleep(0.5)


def sessions_that_come_back_and_do_not_read(attacker: Attacker) -> None:
    """Each with much that it has not acknowledged, which is sent again."""
    for number in range(10):
        sock = attacker.connect(f"a{number}", KEPT)
        assert sock is not None
        attacker.send(sock, _subscribe("q", qos=1))
    sock = attacker.connect("p")
    assert sock is not None
    for number in range(1, 300):
        attacker.send(sock, Publish(topic="q", payload=bytes(50_000), qos=1, packet_identifier=number))
    for _ in range(3):
        for number in range(10):
            attacker.connect(f"a{number}", KEPT, reads=False, clean_start=False)
    time.sleep(0.5)


def large_subscribes_of_many(attacker: Attacker) -> None:
    for name, sock in enumerate(attacker.many(100)):
        attacker.send(sock, _subscribe(*(f"{name}/{number}/{'y' * 60}" for number in range(9_000))))


def pings_behind_large_subscribes(attacker: Attacker) -> None:
    socks = attacker.many(100)
    for sock in socks:
        attacker.send(sock, _subscribe(*(f"{number}/yyyy" for number in range(9_900))))
    while attacker.has_time:
        for sock in socks:
            attacker.send(sock, b"\xc0\x00" * 50_000)


def questions_whose_answers_are_not_read(attacker: Attacker) -> None:
    packet = _subscribe(*(f"{number}" for number in range(9_000)))
    for sock in attacker.many(10, reads=False):
        sock.settimeout(0.2)
        while attacker.has_time and attacker.send(sock, packet):
            pass


def messages_of_qos_2_that_are_never_released(attacker: Attacker) -> None:
    for sock in attacker.many(20):
        for number in range(1, 1_000):
            attacker.send(sock, Publish(topic="q", payload=bytes(2_000), qos=2, packet_identifier=number))


def names_that_are_used_up(attacker: Attacker) -> None:
    number = 0
    while attacker.has_time:
        number += 1
        sock = attacker.connect("\U0001f600" + "x" * 1_000 + str(number))  # four times its bytes in memory
        assert sock is not None, "those who came before left too much behind"
        attacker.send(sock, Publish(topic="q", payload=b"x"), b"\xe0\x00")
        sock.close()


def property_lists(attacker: Attacker) -> None:
    sock = attacker.connect("a")
    assert sock is not None
    many: Properties = {Property.USER_PROPERTY: [("n" * 30, "v" * 30)] * 900}
    for number in range(1_500):
        attacker.send(sock, Publish(topic=f"t/{number}", payload=b"x", retain=True, properties=many))


ATTACKS: tuple[Callable[[Attacker], None], ...] = (
    large_retained_messages,
    retained_messages_that_grow,
    long_filters,
    wills_of_sessions_that_are_there,
    queues,
    packets_that_are_never_complete,
    topic_aliases,
    retained_messages_for_readers_that_do_not_read,
    sessions_that_come_back_and_do_not_read,
    large_subscribes_of_many,
    pings_behind_large_subscribes,
    names_that_are_used_up,
)
MORE: tuple[Callable[[Attacker], None], ...] = (  # with `make attack`
    small_retained_messages,
    retained_messages_at_qos_1,
    short_filters,
    filters_of_many_levels,
    groups,
    wills,
    sessions,
    readers_that_do_not_read,
    readers_that_do_not_acknowledge,
    questions_whose_answers_are_not_read,
    messages_of_qos_2_that_are_never_released,
    property_lists,
)


@pytest.mark.parametrize(
    "attack",
    [*ATTACKS, *(pytest.param(each, marks=pytest.mark.long) for each in MORE)],
    ids=[each.__name__ for each in (*ATTACKS, *MORE)],
)
def test_the_bound_holds_and_others_get_on(attack: Callable[[Attacker], None], tmp_path: Path) -> None:
    with Victim(tmp_path, BOUND) as victim, Witness(victim.port) as witness, ExitStack() as stack:
        attack(Attacker(victim.port, stack))
        with victim.operator() as operator:
            operator.subscribe("$SYS/tide/pulse")
            assert operator.take(Publish).topic == "$SYS/tide/pulse"
            assert operator.publish("operator/was/here", b"", qos=1) is not None
        witness.end()
        assert witness.worst < WORST_PING
        assert victim.peak_share < OVER


# -- afterwards ---------------------------------------------------------------------------------------------


def test_after_a_restart_with_more_than_the_bound_those_with_a_session_and_the_operator_get_in(
    tmp_path: Path,
) -> None:
    bound = 150_000_000
    count = 2_000
    data = tmp_path / "data"
    with Victim(tmp_path, 1_000_000_000, data=data) as victim, ExitStack() as stack:
        attacker = Attacker(victim.port, stack)
        assert attacker.connect("known", KEPT) is not None
        sock = attacker.connect("a")
        assert sock is not None
        for number in range(count):
            attacker.send(sock, _retained(f"t/{number}", 60_000, qos=1))
        wait_metric(victim, "retained", lambda kept: kept >= count)
        with victim.operator() as operator:
            operator.publish("t/last", b"x", qos=1, retain=True)
    with Victim(tmp_path, bound, data=data) as victim, ExitStack() as stack:
        attacker = Attacker(victim.port, stack)
        assert victim.metrics()["memory_pressure"] >= 1
        assert attacker.connect("stranger") is None
        assert attacker.connect("known", KEPT) is not None
        with victim.operator() as operator:
            operator.subscribe("t/last", qos=1)
            assert operator.take(Publish).payload == b"x"
            for number in range(count):
                operator.publish(f"t/{number}", b"", qos=1, retain=True)
        wait_metric(victim, "memory_pressure", lambda step: not step)
        assert attacker.connect("stranger") is not None


def test_while_the_disk_takes_nothing_no_more_is_kept_for_it(tmp_path: Path, dial: Dial, until: Until) -> None:
    """Neither at QoS 0 nor for sessions: what waits for the disk is in memory."""
    most = 200_000
    given = {
        "listeners.0.port": 0, "limits.connection_rate": 0.0, "data": str(tmp_path / "data"),
        "store.max_uncommitted_bytes": most,
    }  # fmt: skip
    with NodeThread(load_settings(None, (), {}, given)) as node:
        here = dial(node)
        here.connect("here", properties=KEPT)
        here.subscribe("first")  # answered when it is on disk
        clean = dial(node)
        clean.connect("clean")
        core = node.node.broker.core
        store = core.store
        assert store is not None
        with stalled_disk(tmp_path / "data"):
            for number in range(100):
                clean.publish(f"t/{number}", bytes(10_000), retain=True)
            clean.barrier()
            codes = [here.subscribe(f"{number}/{LONG}").reason_codes[0] for number in range(3)]
            refused = dial(node).connect("new", properties=KEPT)
            assert dial(node).connect("new", will=Will(topic="w", payload=b"")).reason_code == ReasonCode.SERVER_BUSY
            assert dial(node).connect("new").reason_code == 0  # for whom nothing is kept
            size = node.call(lambda: store.batch.size_bytes)
        assert refused.reason_code == ReasonCode.SERVER_BUSY
        assert codes == [ReasonCode.QUOTA_EXCEEDED] * 3
        assert most <= size <= most + 50_000
        until(lambda: not node.call(lambda: store.is_blocked), 10.0)
        assert here.subscribe("t").reason_codes == [0]
