"""Named moments to die: the disk is stalled, so a commit cannot overtake the kill, and what was said is known.

An answer promises durability. Each test asks for one while no commit is possible, sees that it does not come, kills
the broker and looks at what a client finds afterwards.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.process import BrokerProcess, stalled_disk
from tidegate.mqtt import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient

VERSIONS = pytest.mark.parametrize("version", [4, 5])
FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def join(broker: BrokerProcess, name: str, version: int, *, present: bool | None = None) -> RawClient:
    """A client with a session that outlives its connections."""
    client = RawClient(broker.port, version)
    answer = client.connect(name, clean_start=False, properties=FOR_EVER if version == 5 else {})
    assert answer.reason_code == 0
    if present is not None:
        assert answer.session_present is present
    return client


def subscribed(broker: BrokerProcess, name: str, version: int, topic_filter: str, qos: int) -> None:
    """A persistent session with a subscription, whose client is away."""
    with join(broker, name, version) as client:
        client.subscribe(topic_filter, qos)
        client.disconnect()


def received(broker: BrokerProcess, name: str, version: int, *, until: bytes = b"last") -> list[bytes]:
    """What the session `name` has waiting, up to a message that is published now to the topic `t`."""
    with RawClient(broker.port, 5) as publisher:
        publisher.connect("barrier")
        publisher.publish("t", until, qos=1)
    found: list[bytes] = []
    with join(broker, name, version, present=True) as client:
        while not found or found[-1] != until:
            message = client.take(Publish)
            client.acknowledge(message)
            found.append(message.payload)
    return found[:-1]


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_is_not_acknowledged_before_its_commit(
    broker: BrokerProcess, version: int, qos: int
) -> None:
    subscribed(broker, "reader", version, "t", qos)
    with stalled_disk(broker.data), join(broker, "writer", version) as writer:
        writer.send(Publish(topic="t", payload=b"x", qos=qos, packet_identifier=7))
        assert writer.barrier() == []
        broker.kill()
    broker.start()
    with join(broker, "writer", version) as writer:
        writer.publish("t", b"x", qos=qos, dup=True, packet_identifier=7)
    assert received(broker, "reader", version) == [b"x"]


@VERSIONS
def test_a_repeated_qos_2_publish_is_not_answered_before_the_commit_of_the_first(
    broker: BrokerProcess, version: int
) -> None:
    subscribed(broker, "reader", version, "t", 2)
    with join(broker, "writer", version) as writer:
        writer.publish("t", b"before", qos=2)
    with stalled_disk(broker.data):
        first = join(broker, "writer", version, present=True)
        first.send(Publish(topic="t", payload=b"x", qos=2, packet_identifier=7))
        assert first.barrier() == []
        with join(broker, "writer", version, present=True) as second:
            second.send(Publish(topic="t", payload=b"x", qos=2, packet_identifier=7, dup=True))
            assert second.barrier() == []
            broker.kill()
        first.close()
    broker.start()
    with join(broker, "writer", version, present=True) as writer:
        writer.publish("t", b"x", qos=2, dup=True, packet_identifier=7)
    assert received(broker, "reader", version) == [b"before", b"x"]


@VERSIONS
def test_a_repeated_pubrel_is_not_answered_before_the_commit_of_the_first(
    broker: BrokerProcess, version: int
) -> None:
    subscribed(broker, "reader", version, "t", 2)
    with join(broker, "writer", version) as writer:
        writer.send(Publish(topic="t", payload=b"one", qos=2, packet_identifier=7))
        writer.take(Pubrec)
        with stalled_disk(broker.data):
            writer.send(Pubrel(packet_identifier=7))
            assert writer.barrier() == []
            with join(broker, "writer", version, present=True) as second:
                second.send(Pubrel(packet_identifier=7))
                assert second.barrier() == []
                broker.kill()
    broker.start()
    with join(broker, "writer", version, present=True) as writer:
        writer.send(Pubrel(packet_identifier=7))
        writer.take(Pubcomp, packet_identifier=7)
        writer.publish("t", b"two", qos=2, packet_identifier=7)
    assert received(broker, "reader", version) == [b"one", b"two"]


@VERSIONS
def test_a_pubrel_is_not_sent_before_the_pubrec_is_on_disk(broker: BrokerProcess, version: int) -> None:
    with join(broker, "reader", version) as reader, RawClient(broker.port, 5) as writer:
        reader.subscribe("t", 2)
        writer.connect("writer")
        writer.publish("t", b"x", qos=2)
        message = reader.take(Publish)
        with stalled_disk(broker.data):
            assert message.packet_identifier is not None
            reader.send(Pubrec(packet_identifier=message.packet_identifier))
            assert reader.barrier() == []
            broker.kill()
    broker.start()
    with join(broker, "reader", version, present=True) as reader:
        again = reader.take(Publish)
        assert again.packet_identifier == message.packet_identifier  # a receiver knows it by this number
        reader.acknowledge(again)


@VERSIONS
def test_a_pubrel_is_not_sent_again_on_a_new_connection_before_the_pubrec_is_on_disk(
    broker: BrokerProcess, version: int
) -> None:
    with join(broker, "reader", version) as reader, RawClient(broker.port, 5) as writer:
        reader.subscribe("t", 2)
        writer.connect("writer")
        writer.publish("t", b"x", qos=2)
        message = reader.take(Publish)
        with stalled_disk(broker.data):
            assert message.packet_identifier is not None
            reader.send(Pubrec(packet_identifier=message.packet_identifier))
            assert reader.barrier() == []
            with join(broker, "reader", version, present=True) as second:
                assert second.barrier() == []


@VERSIONS
def test_a_receiver_that_came_back_between_pubrec_and_its_commit_gets_the_message_once(
    broker: BrokerProcess, version: int
) -> None:
    """What a client does that keeps to the specification: it counts a message, and forgets its number at PUBREL."""
    remembered: set[int] = set()
    counted = 0
    with join(broker, "reader", version) as reader, RawClient(broker.port, 5) as writer:
        reader.subscribe("t", 2)
        writer.connect("writer")
        writer.publish("t", b"x", qos=2)
        message = reader.take(Publish)
        assert message.packet_identifier is not None
        counted += 1
        remembered.add(message.packet_identifier)
        with stalled_disk(broker.data):
            reader.send(Pubrec(packet_identifier=message.packet_identifier))
            assert reader.barrier() == []
            with join(broker, "reader", version, present=True) as second:
                for packet in second.barrier():
                    if isinstance(packet, Pubrel):
                        remembered.discard(packet.packet_identifier)
                        second.send(Pubcomp(packet_identifier=packet.packet_identifier))
                second.barrier()
                broker.kill()
    broker.start()
    with join(broker, "reader", version, present=True) as reader:
        again = reader.receive()
        if isinstance(again, Publish) and again.packet_identifier not in remembered:
            counted += 1
    assert counted == 1


@VERSIONS
def test_a_receiver_that_saw_pubrel_never_sees_the_message_again(broker: BrokerProcess, version: int) -> None:
    with join(broker, "reader", version) as reader, RawClient(broker.port, 5) as writer:
        reader.subscribe("t", 2)
        writer.connect("writer")
        writer.publish("t", b"x", qos=2)
        message = reader.take(Publish)
        assert message.packet_identifier is not None
        reader.send(Pubrec(packet_identifier=message.packet_identifier))
        reader.take(Pubrel, packet_identifier=message.packet_identifier)
        with stalled_disk(broker.data):
            reader.send(Pubcomp(packet_identifier=message.packet_identifier))
            reader.barrier()
            broker.kill()
    broker.start()
    with join(broker, "reader", version, present=True) as reader:
        reader.take(Pubrel, packet_identifier=message.packet_identifier)
        reader.send(Pubcomp(packet_identifier=message.packet_identifier))
        assert reader.barrier() == []
    assert received(broker, "reader", version) == []


@VERSIONS
def test_subscriptions_are_acknowledged_after_their_commit(broker: BrokerProcess, version: int) -> None:
    subscribed(broker, "reader", version, "t", 1)
    with stalled_disk(broker.data), join(broker, "reader", version, present=True) as reader:
        asked = [Subscription(topic_filter="other", qos=1)]
        reader.send(Subscribe(packet_identifier=1, subscriptions=asked))
        reader.send(Unsubscribe(packet_identifier=2, topic_filters=["t"]))
        assert reader.barrier() == []
        broker.kill()
    broker.start()
    with RawClient(broker.port) as writer:
        writer.connect("writer")
        writer.publish("other", b"not subscribed", qos=1)
    assert received(broker, "reader", version) == []
    with join(broker, "reader", version, present=True) as reader:
        reader.subscribe("other", 1)
        reader.unsubscribe("t")
        broker.restart()
    with RawClient(broker.port) as writer:
        writer.connect("writer")
        writer.publish("t", b"no more", qos=1)
        writer.publish("other", b"subscribed", qos=1)
    with join(broker, "reader", version, present=True) as reader:
        assert reader.take(Publish).payload == b"subscribed"


@VERSIONS
def test_a_retained_message_is_acknowledged_after_its_commit(broker: BrokerProcess, version: int) -> None:
    with RawClient(broker.port, version) as writer:
        writer.connect("writer")
        writer.publish("r", b"old", qos=1, retain=True)
        with stalled_disk(broker.data):
            writer.send(Publish(topic="r", payload=b"new", qos=1, packet_identifier=9, retain=True))
            assert writer.barrier() == []
            broker.kill()
    broker.start()
    with RawClient(broker.port, version) as reader:
        reader.connect("reader")
        reader.subscribe("r", 1)
        assert reader.take(Publish).payload == b"old"
        reader.publish("r", b"new", qos=1, retain=True)
        broker.restart()
    with RawClient(broker.port, version) as reader:
        reader.connect("reader")
        reader.subscribe("r", 1)
        assert reader.take(Publish).payload == b"new"
        reader.publish("r", b"", qos=1, retain=True)
        broker.restart()
    with RawClient(broker.port, version) as reader:
        reader.connect("reader")
        reader.subscribe("r", 1)
        assert reader.barrier() == []


@pytest.mark.parametrize("is_persistent", [False, True])
def test_the_will_of_a_client_that_was_connected_goes_out_once_after_the_restart(
    broker: BrokerProcess, is_persistent: bool
) -> None:
    subscribed(broker, "reader", 5, "t", 2)
    with RawClient(broker.port) as client:
        client.connect(
            "mortal",
            will=Will(topic="t", payload=b"gone", qos=2),
            properties=FOR_EVER if is_persistent else {},
        )
        client.publish("t", b"alive", qos=1)  # its answer tells that the will is on disk, too
        broker.restart()
    broker.restart()
    assert received(broker, "reader", 5) == [b"alive", b"gone"]


def test_a_session_taken_over_by_a_clean_start_stays_ended(broker: BrokerProcess) -> None:
    subscribed(broker, "reader", 5, "t", 2)
    with RawClient(broker.port) as writer:
        writer.connect("writer")
        writer.publish("t", b"for the old session", qos=2)
    with RawClient(broker.port) as reader:
        assert not reader.connect("reader", clean_start=True, properties=FOR_EVER).session_present
        reader.subscribe("other", 2)
        broker.restart()
    with join(broker, "reader", 5, present=True) as reader:
        reader.publish("t", b"nobody", qos=1)
        reader.publish("other", b"somebody", qos=1)
        assert reader.take(Publish).payload == b"somebody"
        assert reader.barrier() == []


def test_a_session_that_changes_its_version_keeps_its_queue(broker: BrokerProcess) -> None:
    subscribed(broker, "reader", 5, "t", 2)
    with RawClient(broker.port) as writer:
        writer.connect("writer")
        properties = {Property.USER_PROPERTY: [("k", "v")]}
        for number in range(3):
            writer.publish("t", b"%d" % number, qos=2, properties=properties)
    broker.restart()
    with join(broker, "reader", 4, present=True) as reader:
        first = reader.take(Publish)
        assert first.payload == b"0"
    broker.restart()
    assert received(broker, "reader", 5) == [b"0", b"1", b"2"]


def test_an_expired_session_does_not_come_back(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as reader:
        reader.connect("reader", clean_start=False, properties={Property.SESSION_EXPIRY_INTERVAL: 1})
        reader.subscribe("t", 1)
    broker.restart()
    with RawClient(broker.port) as other:
        other.connect("other")
        while True:  # the session ends by itself a second after the restart
            answer = other.publish("t", b"x", qos=1)
            assert isinstance(answer, Puback)
            if answer.reason_code == 0x10:  # nobody subscribes any more
                break
    subscribed(broker, "witness", 5, "t", 1)  # its answer tells that the end of the session is on disk, too
    broker.restart()
    with RawClient(broker.port) as reader:
        assert not reader.connect("reader", clean_start=False, properties=FOR_EVER).session_present


def test_acknowledgements_keep_their_order_around_a_commit(broker: BrokerProcess) -> None:
    subscribed(broker, "reader", 5, "t", 1)
    with join(broker, "writer", 5) as writer:
        with stalled_disk(broker.data):
            writer.send(Publish(topic="t", payload=b"x", qos=1, packet_identifier=1))
            writer.send(Publish(topic="nobody", payload=b"x", qos=1, packet_identifier=2))
            writer.send(Subscribe(packet_identifier=3, subscriptions=[Subscription(topic_filter="a", qos=0)]))
            writer.send(Unsubscribe(packet_identifier=4, topic_filters=["a"]))
            assert writer.barrier() == []
        kinds = [type(writer.receive()) for _ in range(4)]
    assert kinds == [Puback, Puback, Suback, Unsuback]
