"""A broker among clients that lie, stall or stop listening: they are ended, and nobody else notices.

`TIDEGATE_MUTATIONS` sets how many mutated packets are sent (20,000 by default, 100,000 at most) and
`TIDEGATE_SEED` which ones; a failure names its seed.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

import pytest

from tests.integration.broker.mutants import connect, send_all, streams
from tests.malformed import CASES, UNSUPPORTED_PROTOCOL_VERSION, Case
from tidegate.broker.settings import Features, Limits, QueueFull
from tidegate.mqtt import Connack, Disconnect, Packet, PacketReader, Publish, ReasonCode
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

ANSWER_WITHIN: Final = 2.0
"""Seconds in which a well-behaved client has its answer, whatever the others do."""
END_WITHIN: Final = 5.0
"""Seconds in which a connection is gone after its error."""
MUTATIONS: Final = min(int(os.environ.get("TIDEGATE_MUTATIONS", "20000")), 100_000)
SEED: Final = int(os.environ.get("TIDEGATE_SEED", "1"))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """Limits as by default, but for the rate of connections, which one machine alone would exceed."""
    with BrokerThread(limits=Limits(connection_rate=0)) as running:
        yield running


@pytest.fixture
def impatient() -> Iterator[BrokerThread]:
    """A broker whose deadlines a test can wait for."""
    limits = Limits(connect_timeout=0.5, packet_timeout=0.5, write_timeout=1.0, max_packet_size=1_000_000)
    with BrokerThread(limits=limits) as running:
        yield running


@pytest.fixture
def no_fault(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The broker logs no error: what clients send is never a fault of the broker."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


class Witness:
    """A well-behaved client on a thread of its own; publishes to itself and notes the longest wait."""

    def __init__(self, broker: BrokerThread) -> None:
        self.slowest = 0.0
        self.round_trips = 0
        self.error: BaseException | None = None
        self._client = RawClient(broker.port, 5, timeout=END_WITHIN)
        self._client.connect(f"witness-{uuid4().hex}")
        self._topic = f"witness/{uuid4().hex}"
        self._client.subscribe(self._topic, 1)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._done.wait(0.01):
                started = time.monotonic()
                payload = b"%d" % self.round_trips
                self._client.publish(self._topic, payload, 1)
                self._client.acknowledge(self._client.take(Publish, topic=self._topic, payload=payload))
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.round_trips += 1
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            wait_until(lambda: self.round_trips > 0 or self.error is not None)
        self._done.set()
        self._thread.join(2 * END_WITHIN)
        self._client.close()
        if error is None:
            if self.error is not None:
                raise self.error
            assert self.slowest < ANSWER_WITHIN


def wait_until(condition: Callable[[], bool], seconds: float = END_WITHIN) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def read_to_the_end(connection: socket.socket, seconds: float = END_WITHIN) -> bytes:
    """All that the server sends until it closes."""
    deadline = time.monotonic() + seconds
    received = b""
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not data:
            return received
        received += data


def open_connection(broker: BrokerThread) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), timeout=END_WITHIN)


def send_case(broker: BrokerThread, case: Case) -> socket.socket:
    """A connection on which the case has been sent, behind an accepted CONNECT if it asks for one."""
    connection = open_connection(broker)
    if case.stage == "connected":
        packet = b"\0\4MQTT" + bytes([case.version, 2]) + b"\0\x3c" + (b"\0" if case.version == 5 else b"")
        name = uuid4().hex.encode()
        packet += len(name).to_bytes(2, "big") + name
        connection.sendall(bytes([0x10, len(packet)]) + packet)
        connection.recv(2, socket.MSG_WAITALL)
        rest = connection.recv(65536)  # the rest of CONNACK
        assert rest[1] == 0
    connection.sendall(case.data)
    return connection


def packets_in(data: bytes, version: int) -> list[Packet]:
    return PacketReader(version).feed(data) if data else []


def speaks_mqtt(data: bytes) -> bool:
    """Whether it begins as a CONNECT does: what does not gets no answer."""
    return data[:1] == b"\x10" and (b"\0\4MQTT" in data or b"\0\6MQIsdp" in data)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.usefixtures("no_fault")
def test_a_packet_that_must_be_refused_ends_its_connection_with_the_reason(
    case: Case, broker: BrokerThread
) -> None:
    with send_case(broker, case) as connection:
        answer = read_to_the_end(connection)
    if case.stage == "connect" and not speaks_mqtt(case.data):
        assert answer == b""
    elif case.reason_code == UNSUPPORTED_PROTOCOL_VERSION:
        assert answer == b"\x20\x02\x00\x01"  # in the form that every client can read
    elif case.version < 5:
        assert answer == b""
    elif case.stage == "connected":
        [disconnect] = packets_in(answer, 5)
        assert isinstance(disconnect, Disconnect)
        assert disconnect.reason_code == case.reason_code
    elif b"\0\4MQTT\5" in case.data:
        [connack] = packets_in(answer, 5)
        assert isinstance(connack, Connack)
        assert connack.reason_code == case.reason_code
    else:
        assert answer == b""  # nothing shows that it speaks MQTT 5


@pytest.mark.usefixtures("no_fault")
def test_a_client_that_stays_after_its_error_is_thrown_out(broker: BrokerThread) -> None:
    with Witness(broker):
        connections = [send_case(broker, case) for case in CASES]
        started = time.monotonic()
        for connection in connections:
            with connection:
                connection.settimeout(0.1)
                wait_until(lambda: _refuses(connection), END_WITHIN + 1)  # noqa: B023 - called at once
        assert time.monotonic() - started < END_WITHIN
    wait_until(lambda: broker.statistics()["connections"] == 0)


def _refuses(connection: socket.socket, data: bytes = b"\xc0\x00") -> bool:
    """Send more: a closed connection still takes bytes, one that does not read makes us wait, a reset one fails."""
    try:
        connection.send(data)
    except TimeoutError:
        return False
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("no_fault")
def test_mutated_packets_hang_no_connection_and_delay_nobody(broker: BrokerThread) -> None:
    with Witness(broker):
        hanging = send_all(broker.port, streams(MUTATIONS, Random(SEED)))
    assert [stream.hex() for stream in hanging] == [], f"seed {SEED}"
    wait_until(lambda: broker.statistics()["connections"] == 0)
    assert broker.statistics()["handshakes"] == 0


@pytest.mark.parametrize("sent", [b"", b"\x10", connect(5, 0)[:20], connect(4, 0)[:-1]])
@pytest.mark.usefixtures("no_fault")
def test_a_client_that_never_finishes_CONNECT_is_cut_off(sent: bytes, impatient: BrokerThread) -> None:
    with open_connection(impatient) as connection:
        started = time.monotonic()
        connection.sendall(sent)
        assert read_to_the_end(connection) == b""
        assert 0.4 < time.monotonic() - started < 0.5 + ANSWER_WITHIN


@pytest.mark.usefixtures("no_fault")
def test_a_client_that_dribbles_its_CONNECT_is_cut_off(impatient: BrokerThread) -> None:
    with open_connection(impatient) as connection:
        assert dribble(connection, connect(5, 0)) < 0.5 + ANSWER_WITHIN


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.usefixtures("no_fault")
def test_a_client_that_dribbles_a_packet_is_cut_off(version: int, impatient: BrokerThread) -> None:
    with Witness(impatient), open_connection(impatient) as connection:
        connection.sendall(connect(version, 0))
        assert connection.recv(65536)
        assert dribble(connection, b"\x30\x7f\x00\x7d" + bytes(120)) < 0.5 + ANSWER_WITHIN


def dribble(connection: socket.socket, data: bytes) -> float:
    """Send a byte every 50 ms until the server closes; gives the seconds until then."""
    started = time.monotonic()
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
            connection.settimeout(0.05)
            while connection.recv(65536):
                pass
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            pass
        return time.monotonic() - started
    raise AssertionError("the server took the whole packet")


@pytest.mark.usefixtures("no_fault")
def test_five_hundred_silent_connections_do_not_keep_others_out(broker: BrokerThread) -> None:
    silent = [open_connection(broker) for _ in range(500)]
    with Witness(broker) as witness:
        wait_until(lambda: witness.round_trips > 10 or witness.error is not None)
    for connection in silent:
        connection.close()
    wait_until(lambda: broker.statistics()["handshakes"] == 0)


@pytest.mark.parametrize("version", [4, 5])
def test_a_packet_that_announces_too_much_is_refused_before_it_comes(
    version: int, broker: BrokerThread
) -> None:
    with RawClient(broker.port, version) as client:
        client.connect(uuid4().hex)
        client.send_bytes(b"\x30\xff\xff\xff\x7f")
        disconnect = client.expect_closed(END_WITHIN)
        if version == 5:
            assert disconnect is not None
            assert disconnect.reason_code == ReasonCode.PACKET_TOO_LARGE
        else:
            assert disconnect is None


@pytest.mark.usefixtures("no_fault")
def test_a_subscriber_that_stops_reading_is_cut_off_and_delays_nobody(impatient: BrokerThread) -> None:
    deaf, listener, publisher = (RawClient(impatient.port, 5) for _ in range(3))
    with deaf, listener, publisher, Witness(impatient):
        for client in (deaf, listener, publisher):
            client.connect(uuid4().hex)
        deaf.subscribe("flood")
        listener.subscribe("flood")
        payload = bytes(100_000)
        started = time.monotonic()
        rounds = 0
        while impatient.statistics()["connections"] == 4:
            assert time.monotonic() - started < 1.0 + 2 * END_WITHIN
            publisher.publish("flood", payload)
            listener.expect(Publish, ANSWER_WITHIN, topic="flood")
            rounds += 1
        assert rounds > 10
        assert impatient.statistics()["queued_bytes"] <= Limits().max_total_queued_bytes


@pytest.mark.usefixtures("no_fault")
def test_a_client_that_asks_and_never_reads_is_cut_off(impatient: BrokerThread) -> None:
    with Witness(impatient), open_connection(impatient) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(connect(4, 0))
        connection.settimeout(0.2)
        wait_until(lambda: _refuses(connection, b"\xc0\x00" * 8_192), 4 * END_WITHIN)


@pytest.mark.usefixtures("no_fault")
def test_a_publisher_held_by_a_deaf_subscriber_goes_on_when_that_one_is_gone() -> None:
    limits = Limits(write_timeout=1.0, max_inflight=10, max_queued_messages=50)
    features = Features(queue_full=QueueFull.HOLD)
    with BrokerThread(limits=limits, features=features) as broker:
        deaf, publisher = RawClient(broker.port, 4), RawClient(broker.port, 4)
        with deaf, publisher, Witness(broker):
            deaf.connect(uuid4().hex)
            publisher.connect(uuid4().hex)
            deaf.subscribe("flood", 1)
            for number in range(1, 101):
                publisher.send(Publish(topic="flood", payload=bytes(1_000), qos=1, packet_identifier=number))
            wait_until(lambda: broker.statistics()["publish_held"] > 0)
            deaf.close()
            for number in range(1, 101):
                acknowledgement = publisher.receive(END_WITHIN)
                assert getattr(acknowledgement, "packet_identifier", None) == number
