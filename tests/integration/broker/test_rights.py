"""Authorisation: what a client may not publish, subscribe to or receive, by whichever way it tries."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker.connection import Connection
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.broker.message import Message
from tidegate.broker.session import Session
from tidegate.mqtt import Puback, Publish, Pubrec, ReasonCode, Subscription, Will
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread

NOT_AUTHORIZED = ReasonCode.NOT_AUTHORIZED


@dataclass
class Rights:
    """Who may do what, as functions of the client's identifier (or user) and the topic."""

    publish: Callable[[str, str], bool] = lambda _who, _topic: True
    subscribe: Callable[[str, str], bool] = lambda _who, _filter: True
    receive: Callable[[str, str], bool] = lambda _who, _topic: True
    asked: list[tuple[str, str]] = field(default_factory=list)

    def may_publish(self, client: Connection, topic: str) -> bool:
        self.asked.append((client.session.client_id, topic))
        return self.publish(client.session.client_id, topic)

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        return self.subscribe(client.session.client_id, topic_filter)

    def may_receive(self, session: Session, topic: str) -> bool:
        return self.receive(session.user or session.client_id, topic)


class TrustingDoor:
    """Everybody is who they say."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(user=request.username)


class Watch:
    """Every message that was published, one entry each."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def on_run(self, client: Connection, packets: bytes, count: int) -> None:
        self.seen.append((client.session.client_id, count))

    def on_message(self, client: Connection, message: Message) -> None:
        self.seen.append((client.session.client_id, 1))


def not_secret(_who: str, topic: str) -> bool:
    return not topic.startswith("secret")


@pytest.fixture
def guarded(start_broker: StartBroker) -> BrokerThread:
    """Nobody may publish to `secret`."""
    return start_broker(hooks=Hooks(authoriser=Rights(publish=not_secret)))


def test_a_denied_publish_reaches_nobody_and_is_answered_by_version_and_qos(
    guarded: BrokerThread, dial: Dial
) -> None:
    reader, new, old = dial(guarded), dial(guarded, 5), dial(guarded, 4)
    reader.connect("reader")
    reader.subscribe("#", qos=2)
    new.connect("new")
    old.connect("old")
    for _ in range(2):  # the second answer comes from the cache
        new.publish("secret", b"0")
        new.publish("secret", b"kept", retain=True)
        answer = new.publish("secret", b"1", qos=1)
        assert isinstance(answer, Puback) and answer.reason_code == NOT_AUTHORIZED
        refusal = new.publish("secret", b"2", qos=2)
        assert isinstance(refusal, Pubrec) and refusal.reason_code == NOT_AUTHORIZED
        old.publish("secret", b"1", qos=1)
        old.publish("secret", b"2", qos=2)
    new.publish("open", b"fine", qos=1)
    reader.expect(Publish, topic="open", payload=b"fine")
    assert reader.barrier() == []
    assert guarded.call(lambda: guarded.broker.core.retained.get(b"secret")) is None


def test_every_denied_publish_is_counted(guarded: BrokerThread, dial: Dial) -> None:
    client = dial(guarded)
    client.connect("c")
    for _ in range(3):
        client.publish("secret", b"0")
        client.publish("secret", b"1", qos=1)
    client.barrier()
    assert guarded.statistics()["publish_denied"] == 6


def test_an_observer_sees_no_denied_publish(start_broker: StartBroker, dial: Dial) -> None:
    watch = Watch()
    broker = start_broker(hooks=Hooks(authoriser=Rights(publish=not_secret), publish_observers=(watch,)))
    client = dial(broker)
    client.connect("c")
    for _ in range(3):
        client.publish("secret", b"0")
        client.barrier()
    assert watch.seen == []


def test_a_denied_filter_is_refused_and_the_others_of_the_packet_are_not(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=Hooks(authoriser=Rights(subscribe=not_secret)))
    client = dial(broker)
    client.connect("c")
    asked = [Subscription(topic_filter=name) for name in ("a", "secret/#", "$share/g/secret", "b")]
    assert client.subscribe_all(asked).reason_codes == [0, NOT_AUTHORIZED, NOT_AUTHORIZED, 0]
    assert broker.statistics()["subscriptions"] == 2


def test_a_wildcard_subscription_brings_only_what_the_client_may_receive(
    start_broker: StartBroker, dial: Dial
) -> None:
    rights = Rights(receive=lambda who, topic: who == "boss" or not topic.startswith("secret"))
    broker = start_broker(hooks=Hooks(authoriser=rights))
    boss, clerk, publisher = dial(broker), dial(broker), dial(broker)
    publisher.connect("p")
    publisher.publish("secret/kept", b"1", qos=1, retain=True)
    publisher.publish("open/kept", b"1", qos=1, retain=True)
    boss.connect("boss")
    clerk.connect("clerk")
    boss.subscribe("#", qos=1)
    clerk.subscribe("#", qos=1)
    assert {boss.take(Publish).topic for _ in range(2)} == {"secret/kept", "open/kept"}
    clerk.take(Publish, topic="open/kept")
    for qos in (0, 1, 2):
        publisher.publish("secret/x", b"new", qos=qos)
        boss.take(Publish, topic="secret/x", qos=min(qos, 1))
    publisher.publish("open/x", b"end", qos=1)
    clerk.expect(Publish, topic="open/x")


def test_a_member_of_a_shared_group_gets_only_what_it_may_receive(
    start_broker: StartBroker, dial: Dial
) -> None:
    rights = Rights(receive=lambda who, topic: who == "boss" or not topic.startswith("secret"))
    broker = start_broker(hooks=Hooks(authoriser=rights))
    boss, clerk, publisher = dial(broker), dial(broker), dial(broker)
    boss.connect("boss")
    clerk.connect("clerk")
    boss.subscribe("$share/g/#", qos=1)
    clerk.subscribe("$share/g/#", qos=1)
    publisher.connect("p")
    for number in range(6):
        publisher.publish("secret/x", b"%d" % number, qos=number % 2)
    publisher.barrier()
    assert clerk.barrier() == []
    assert len([p for p in boss.barrier() if isinstance(p, Publish)]) == 6


def test_a_will_needs_the_right_to_its_topic(guarded: BrokerThread, dial: Dial, until: Until) -> None:
    reader, dying = dial(guarded), dial(guarded)
    reader.connect("reader")
    reader.subscribe("#")
    dying.connect("dying", will=Will(topic="secret", payload=b"boo"))  # may be refused here already
    dying.close()
    until(lambda: guarded.statistics()["connections"] == 1)
    assert reader.barrier() == []


def test_a_will_cannot_reach_sys_topics(guarded: BrokerThread, dial: Dial) -> None:
    for topic in ("$SYS/broker/version", "$SYS"):
        client = dial(guarded)
        assert (
            client.connect("c", will=Will(topic=topic, payload=b"x")).reason_code
            == ReasonCode.TOPIC_NAME_INVALID
        )


@pytest.mark.parametrize(
    "topic",
    [
        "$SYS/broker/version",
        pytest.param("$SYS"),
    ],
)
def test_clients_cannot_publish_to_sys_topics(start_broker: StartBroker, dial: Dial, topic: str) -> None:
    broker = start_broker(sys_interval=0)
    broker.call(lambda: broker.broker.publish(topic, b"true", retain=True))
    reader, client = dial(broker), dial(broker)
    reader.connect("reader")
    reader.subscribe(topic)
    reader.take(Publish, payload=b"true")
    client.connect("c")
    for _ in range(2):
        client.publish(topic, b"forged")
        client.publish(topic, b"forged", qos=1, retain=True)
        client.barrier()
        broker.call(lambda: broker.broker.publish(topic, b"true"))
    assert {p.payload for p in reader.barrier() if isinstance(p, Publish)} == {b"true"}


def test_rights_are_asked_once_a_topic_and_again_after_they_changed(
    start_broker: StartBroker, dial: Dial
) -> None:
    is_open = {"gate": False}
    rights = Rights(
        publish=lambda _who, _topic: is_open["gate"], receive=lambda _who, _topic: is_open["gate"]
    )
    broker = start_broker(hooks=Hooks(authoriser=rights))
    client = dial(broker)
    client.connect("c")
    client.subscribe("t", qos=1)
    for _ in range(3):
        answer = client.publish("t", b"1", qos=1)
        assert isinstance(answer, Puback) and answer.reason_code == NOT_AUTHORIZED
    assert rights.asked == [("c", "t")]
    is_open["gate"] = True
    broker.call(broker.broker.rights_changed)
    answer = client.publish("t", b"2", qos=1)
    assert isinstance(answer, Puback) and answer.reason_code == ReasonCode.SUCCESS
    client.take(Publish, payload=b"2")
    is_open["gate"] = False
    broker.call(broker.broker.rights_changed)
    client.publish("t", b"3", qos=1)
    assert client.barrier() == []


def test_another_user_of_the_same_session_does_not_inherit_cached_rights(
    start_broker: StartBroker, dial: Dial
) -> None:
    rights = Rights(receive=lambda who, topic: who in ("alice", "p") or not topic.startswith("secret"))
    broker = start_broker(hooks=Hooks(authoriser=rights, authenticator=TrustingDoor()))
    publisher, alice, mallory = dial(broker), dial(broker), dial(broker)
    publisher.connect("p", username="p")
    lasting = {Property.SESSION_EXPIRY_INTERVAL: 3_600}
    alice.connect("shared-id", username="alice", properties=lasting)
    alice.subscribe("#")
    publisher.publish("secret/x", b"1")
    alice.take(Publish, payload=b"1")
    alice.disconnect()
    connack = mallory.connect("shared-id", username="mallory", clean_start=False, properties=lasting)
    if connack.reason_code != ReasonCode.SUCCESS:
        return  # not to be let into another's session is the safest way
    publisher.publish("secret/x", b"2")
    publisher.barrier()
    assert mallory.barrier() == []


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_published_before_and_after_subscribing_in_one_go_is_routed_anew(
    start_broker: StartBroker, dial: Dial, version: int
) -> None:
    broker = start_broker(hooks=Hooks(authoriser=Rights()))
    other, client = dial(broker), dial(broker, version)
    other.connect("other")
    client.connect("c")
    for number in range(50):
        client.publish(f"t/{number}", b"before")
        client.publish(f"t/{number}", b"qos", qos=1)
        client.subscribe(f"t/{number}")
        client.publish(f"t/{number}", b"after")
        assert client.take(Publish).payload == b"after"
