"""Observers see every message and every client once; a hook that raises harms the client it was asked about alone."""

import asyncio
import logging
from collections import Counter

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker.connection import CloseReason, Connection
from tidegate.broker.hooks import Hooks
from tidegate.broker.index import Subscription as Subscribed
from tidegate.broker.message import Message
from tidegate.broker.session import Session
from tidegate.mqtt import Connect, PacketReader, Publish, Pubrel, ReasonCode, Will, encode_packet


class Recorder:
    """Notes the payload of each message, from runs as well."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()

    def on_run(self, client: Connection, packets: bytes, count: int) -> None:
        found = PacketReader(client.version).feed(packets)
        assert len(found) == count
        self.seen.update(p.payload for p in found if isinstance(p, Publish))

    def on_message(self, client: Connection, message: Message) -> None:
        self.seen[message.payload] += 1


class Diary:
    """Notes who came and went."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_connected(self, client: Connection) -> None:
        self.lines.append(f"+{client.session.client_id}")

    def on_disconnected(self, client: Connection, reason: CloseReason) -> None:
        self.lines.append(f"-{client.session.client_id} {reason.name}")

    def on_subscribed(self, session: Session, subscription: Subscribed) -> None:
        self.lines.append(f"{session.client_id}+{subscription.topic_filter.decode()}")

    def on_unsubscribed(self, session: Session, subscription: Subscribed) -> None:
        self.lines.append(f"{session.client_id}-{subscription.topic_filter.decode()}")


class Fragile(Diary):
    """Raises for clients whose name says so."""

    def on_connected(self, client: Connection) -> None:
        if client.session.client_id == "bad-come":
            raise RuntimeError("cannot welcome")
        super().on_connected(client)

    def on_disconnected(self, client: Connection, reason: CloseReason) -> None:
        if client.session.client_id.startswith("bad-go"):
            raise RuntimeError("cannot say goodbye")
        super().on_disconnected(client, reason)


class FragileRights:
    """Raises for one topic in each question."""

    def may_publish(self, client: Connection, topic: str) -> bool:
        if topic == "raise/publish":
            raise RuntimeError("cannot decide")
        return True

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        if topic_filter == "raise/subscribe":
            raise RuntimeError("cannot decide")
        return True

    def may_receive(self, session: Session, topic: str) -> bool:
        if topic == "raise/receive" and session.client_id == "reader":
            raise RuntimeError("cannot decide")
        return True


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What these hooks raise is logged on purpose."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("version", [4, 5])
def test_an_observer_sees_every_message_exactly_once(
    start_broker: StartBroker, dial: Dial, version: int
) -> None:
    recorder = Recorder()
    broker = start_broker(hooks=Hooks(publish_observers=(recorder,)), sys_interval=0)
    for number, filters in enumerate((["#"], ["a", "+"], ["$share/g/b"], ["$share/g/b"])):
        reader = dial(broker, 4 + number % 2)
        reader.connect(f"r{number}")
        for topic_filter in filters:
            reader.subscribe(topic_filter, qos=number % 3)
    client = dial(broker, version)
    client.connect("p")
    for number in range(60):
        topic = ("a", "a", "b", "nobody/here")[number % 4]
        client.publish(topic, b"%d" % number, qos=(0, 0, 1, 2, 0)[number % 5], retain=number % 7 == 0)
    burst = b"".join(encode_packet(Publish(topic="a", payload=b"burst %d" % i), version) for i in range(500))
    client.send_bytes(burst)
    client.send(Publish(topic="a", payload=b"twice", qos=2, packet_identifier=999))
    client.send(Publish(topic="a", payload=b"twice", qos=2, packet_identifier=999, dup=True))
    client.send(Pubrel(packet_identifier=999))
    client.barrier()
    wanted = [b"%d" % i for i in range(60)] + [b"burst %d" % i for i in range(500)] + [b"twice"]
    assert recorder.seen == Counter(wanted)


def test_a_session_observer_sees_clients_come_subscribe_and_go(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    diary = Diary()
    broker = start_broker(hooks=Hooks(session_observers=(diary,)))
    one, two, again = dial(broker), dial(broker, 4), dial(broker)
    one.connect("one")
    one.subscribe("a/#")
    one.unsubscribe("a/#", "never")
    again.connect("one")
    one.expect_closed()
    again.disconnect()
    two.connect("two")
    two.close()
    until(lambda: broker.statistics()["connections"] == 0)
    assert diary.lines == [
        "+one", "one+a/#", "one-a/#", "-one TAKEN_OVER", "+one", "-one CLIENT_DISCONNECTED", "+two", "-two CLIENT_GONE",
    ]  # fmt: skip


@pytest.mark.parametrize("topic", ["raise/publish", "raise/subscribe"])
@pytest.mark.parametrize("version", [4, 5])
def test_rights_that_raise_end_the_client_that_asked_and_say_why(
    start_broker: StartBroker, dial: Dial, until: Until, version: int, topic: str
) -> None:
    broker = start_broker(hooks=Hooks(authoriser=FragileRights()))
    bad, other = dial(broker, version), dial(broker)
    bad.connect("bad")
    other.connect("other")
    if topic == "raise/publish":
        bad.publish(topic, b"x")
    else:
        bad.send_bytes(
            b"\x82\x15\x00\x01"
            + b"\x00" * (version == 5)
            + b"\x00\x0f"
            + topic.encode()
            + b"\x00"
            + b"\xc0\x00"
        )
    bad.expect_closed()
    until(lambda: broker.statistics()["connections"] == 1)
    assert other.barrier() == []
    assert sum(broker.statistics()["closes"].values()) == 1


def test_rights_that_raise_are_told_to_a_v5_client_with_0x80(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(hooks=Hooks(authoriser=FragileRights()))
    bad = dial(broker)
    bad.connect("bad")
    bad.publish("raise/publish", b"x")
    ended = bad.expect_closed()
    assert ended is not None and ended.reason_code == ReasonCode.UNSPECIFIED_ERROR
    assert broker.statistics()["closes"] == {CloseReason.SERVER_ERROR: 1}


def test_a_right_to_receive_that_raises_does_not_harm_the_publisher(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=Hooks(authoriser=FragileRights()))
    reader, publisher = dial(broker), dial(broker)
    reader.connect("reader")
    reader.subscribe("#")
    publisher.connect("p")
    publisher.publish("raise/receive", b"x")
    assert publisher.barrier() == []


def test_a_right_to_receive_that_raises_for_a_retained_message_leaves_later_ones_to_come(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=Hooks(authoriser=FragileRights()), sys_interval=0)
    reader, publisher = dial(broker), dial(broker)
    publisher.connect("p")
    publisher.publish("raise/receive", b"x", qos=1, retain=True)
    publisher.publish("fine", b"x", qos=1, retain=True)
    reader.connect("reader")
    reader.subscribe("raise/receive")
    reader.subscribe("fine")
    reader.take(Publish, timeout=2.0, topic="fine")


def test_an_observer_that_raises_at_the_end_of_a_connection_leaves_no_connection_behind(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(hooks=Hooks(session_observers=(Fragile(),)))
    for number in range(3):
        client = dial(broker)
        client.connect(f"bad-go-{number}")
        client.send_bytes(b"\xe0\x00")
        client.expect_closed(2.0)
    until(lambda: broker.statistics()["connections"] == 0, 2.0)
    assert broker.statistics()["sessions"] == 0


def test_an_observer_that_raises_does_not_save_others_from_their_keep_alive(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=Hooks(session_observers=(Fragile(),)))
    clients = [dial(broker) for _ in range(4)]
    for number, client in enumerate(clients):
        client.send(Connect(client_id=("bad-go" if number == 0 else "good") + str(number), keep_alive=1))
    for client in clients[1:]:
        client.expect_closed(4.0)


def test_an_observer_that_raises_at_connect_harms_nobody(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(hooks=Hooks(session_observers=(Fragile(),)))
    other, bad = dial(broker), dial(broker)
    other.connect("other")
    bad.connect("bad-come")
    assert bad.barrier() == []
    until(lambda: broker.statistics()["connections"] == 2)
    assert other.barrier() == []


def test_a_failing_delayed_will_does_not_stop_the_alarms_of_others(
    start_broker: StartBroker, dial: Dial
) -> None:
    """Alarms share one timer: an error in one may not lose the others."""
    fired: list[str] = []
    broker = start_broker()

    def boom() -> None:
        raise RuntimeError("boom")

    def arm() -> None:
        core = broker.broker.core
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        core.alarms.at(core.now() + 0.05, boom)
        core.alarms.at(core.now() + 0.1, lambda: fired.append("second"))

    broker.call(arm)
    client = dial(broker)
    client.connect("c", will=Will(topic="t", payload=b""))
    client.timeout = 2.0
    for _ in range(150):
        client.barrier()
        if fired:
            break
        try:
            client.expect_nothing(0.01)
        except AssertionError:
            pass
    assert fired == ["second"]
