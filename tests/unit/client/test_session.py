"""The session core against a scripted server: packets in, packets out, no loop and no socket."""

from typing import Any

import pytest

from tidegate.client.errors import (
    ConnectRefused,
    NotConnected,
    PublishRefused,
    ServerDisconnected,
    SessionLost,
    SubscribeRefused,
)
from tidegate.client.message import Message
from tidegate.client.options import ClientOptions
from tidegate.client.publishing import Acknowledgement, Outgoing
from tidegate.client.session import Session
from tidegate.client.subscribing import Request, subscribe_packet
from tidegate.mqtt import (
    Connack,
    Disconnect,
    Packet,
    PacketReader,
    Property,
    ProtocolError,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    Subscription,
)
from tidegate.mqtt.errors import PacketTooLarge, TopicAliasInvalid


class Answer:
    """A waiter that keeps what it was told."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: Exception | None = None

    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def set_result(self, result: Any, /) -> None:
        assert not self.done()
        self.result = result

    def set_exception(self, exception: Exception, /) -> None:
        assert not self.done()
        self.error = exception


class Bench:
    """A session, the bytes it wrote as packets, and the messages it delivered."""

    def __init__(self, **options: Any) -> None:
        self.options = ClientOptions(**{"client_id": "me", **options})
        self.messages: list[Message] = []
        self.session = Session(self.options, self.messages.append, self._discard)
        self.reader = PacketReader(self.options.protocol_version)
        self.sent: list[Packet] = []

    def _discard(self) -> None:
        self.messages[:] = [message for message in self.messages if message.is_acknowledged]

    def connect(self, **connack: Any) -> "Bench":
        self.session.connect_packet()
        self.reader = PacketReader(self.options.protocol_version)
        self.session.on_connack(Connack(**connack), lambda data: self.sent.extend(self.reader.feed(data)))
        return self

    def lose(self) -> None:
        self.session.on_connection_lost()

    def take_sent(self) -> list[Packet]:
        sent, self.sent = self.sent, []
        return sent

    def publish(self, payload: bytes = b"x", qos: int = 1, topic: str = "t") -> Answer:
        answer = Answer()
        self.session.publisher.publish(Outgoing(Publish(topic=topic, payload=payload, qos=qos), answer))
        return answer

    def subscribe(self, *names: str, identifier: int | None = None) -> Answer:
        answer = Answer()
        packet = subscribe_packet([Subscription(topic_filter=name, qos=1) for name in names], identifier)
        self.session.requests.send(Request(packet, answer))
        return answer


def test_a_publish_of_qos_1_is_done_when_its_puback_comes() -> None:
    bench = Bench().connect()
    answer = bench.publish()
    assert bench.take_sent() == [Publish(topic="t", payload=b"x", qos=1, packet_identifier=1)]
    assert not answer.done()
    bench.session.on_packet(Puback(packet_identifier=1))
    assert answer.result == Acknowledgement(ReasonCode.SUCCESS, {})


def test_a_publish_of_qos_2_is_done_when_its_pubcomp_comes() -> None:
    bench = Bench().connect()
    answer = bench.publish(qos=2)
    bench.take_sent()
    bench.session.on_packet(Pubrec(packet_identifier=1))
    assert bench.take_sent() == [Pubrel(packet_identifier=1)]
    assert not answer.done()
    bench.session.on_packet(Pubcomp(packet_identifier=1))
    assert answer.result is not None


@pytest.mark.parametrize("qos, kind", [(1, Puback), (2, Pubrec)])
def test_a_refused_publish_raises_with_its_reason(qos: int, kind: Any) -> None:
    bench = Bench().connect()
    answer = bench.publish(qos=qos)
    bench.session.on_packet(
        kind(packet_identifier=1, reason_code=0x97, properties={Property.REASON_STRING: "too many"})
    )
    assert isinstance(answer.error, PublishRefused)
    assert answer.error.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert answer.error.reason_string == "too many"
    assert answer.error.topic == "t"


def test_no_more_than_receive_maximum_are_in_flight_and_order_is_kept() -> None:
    bench = Bench().connect(properties={Property.RECEIVE_MAXIMUM: 2})
    for number in range(4):
        bench.publish(b"%d" % number)
    assert [packet.payload for packet in bench.take_sent()] == [b"0", b"1"]  # type: ignore[union-attr]
    bench.session.on_packet(Puback(packet_identifier=1))
    assert [packet.payload for packet in bench.take_sent()] == [b"2"]  # type: ignore[union-attr]


def test_mqtt_3_1_1_keeps_twenty_in_flight_unless_told_otherwise() -> None:
    for options, expected in [({}, 20), ({"max_in_flight": 3}, 3)]:
        bench = Bench(protocol_version=4, **options).connect()
        for _ in range(30):
            bench.publish()
        assert len(bench.take_sent()) == expected


def test_a_caller_that_gave_up_before_sending_is_skipped() -> None:
    bench = Bench().connect(properties={Property.RECEIVE_MAXIMUM: 1})
    bench.publish(b"first")
    bench.publish(b"second").set_exception(TimeoutError())
    bench.publish(b"third")
    bench.take_sent()
    bench.session.on_packet(Puback(packet_identifier=1))
    assert [packet.payload for packet in bench.take_sent()] == [b"third"]  # type: ignore[union-attr]


def test_a_message_larger_than_the_server_takes_fails_alone() -> None:
    bench = Bench().connect(properties={Property.MAXIMUM_PACKET_SIZE: 50})
    large, small = bench.publish(b"x" * 100, qos=2), bench.publish(b"x")
    assert isinstance(large.error, PacketTooLarge)
    bench.session.on_packet(Puback(packet_identifier=2))
    assert small.result is not None
    assert len(bench.session.publisher) == 0


def test_a_resumed_session_repeats_what_is_unfinished_before_anything_new() -> None:
    bench = Bench().connect()
    answers = [bench.publish(b"one"), bench.publish(b"two", qos=2), bench.publish(b"three", qos=2)]
    bench.session.on_packet(Pubrec(packet_identifier=3))
    bench.lose()
    answers.append(bench.publish(b"new"))
    bench.take_sent()
    bench.connect(session_present=True)
    assert bench.take_sent() == [
        Publish(topic="t", payload=b"one", qos=1, dup=True, packet_identifier=1),
        Publish(topic="t", payload=b"two", qos=2, dup=True, packet_identifier=2),
        Pubrel(packet_identifier=3),
        Publish(topic="t", payload=b"new", qos=1, packet_identifier=4),
    ]
    bench.session.on_packet(Puback(packet_identifier=1))
    bench.session.on_packet(Pubrec(packet_identifier=2))
    bench.session.on_packet(Pubcomp(packet_identifier=2))
    bench.session.on_packet(Pubcomp(packet_identifier=3))
    bench.session.on_packet(Puback(packet_identifier=4))
    assert all(answer.result is not None for answer in answers)


def test_a_lost_session_publishes_qos_1_anew_and_tells_of_qos_2() -> None:
    bench = Bench().connect()
    one, two, three = bench.publish(b"one"), bench.publish(b"two", qos=2), bench.publish(b"three", qos=2)
    bench.session.on_packet(Pubrec(packet_identifier=3))
    bench.lose()
    bench.take_sent()
    bench.connect(session_present=False)
    assert [(packet.payload, packet.dup) for packet in bench.take_sent()] == [(b"one", False)]  # type: ignore[union-attr]
    assert not one.done()
    assert isinstance(two.error, SessionLost)
    assert isinstance(three.error, SessionLost)


def test_an_unknown_pubrec_is_answered_with_packet_identifier_not_found() -> None:
    bench = Bench().connect()
    bench.session.on_packet(Pubrec(packet_identifier=9))
    assert bench.take_sent() == [Pubrel(packet_identifier=9, reason_code=0x92)]


def test_granted_subscriptions_are_asked_for_again_only_in_a_new_session() -> None:
    bench = Bench().connect()
    bench.subscribe("a/#", "b", identifier=7)
    bench.session.on_packet(Suback(packet_identifier=1, reason_codes=[1, 1]))
    bench.lose()
    bench.take_sent()
    bench.connect(session_present=True)
    assert bench.take_sent() == []
    bench.lose()
    bench.connect(session_present=False)
    (packet,) = bench.take_sent()
    assert isinstance(packet, Subscribe)
    assert [subscription.topic_filter for subscription in packet.subscriptions] == ["a/#", "b"]
    assert packet.properties == {Property.SUBSCRIPTION_IDENTIFIER: [7]}


def test_an_unanswered_subscribe_is_repeated_on_the_next_connection() -> None:
    bench = Bench().connect()
    answer = bench.subscribe("a")
    bench.lose()
    bench.take_sent()
    bench.connect(session_present=True)
    (packet,) = bench.take_sent()
    assert isinstance(packet, Subscribe)
    bench.session.on_packet(Suback(packet_identifier=packet.packet_identifier, reason_codes=[1]))
    assert answer.result == [1]


def test_one_refused_filter_raises_and_the_granted_one_is_kept() -> None:
    bench = Bench().connect()
    answer = bench.subscribe("a", "b")
    bench.session.on_packet(Suback(packet_identifier=1, reason_codes=[0, 0x87]))
    assert isinstance(answer.error, SubscribeRefused)
    assert answer.error.reason_codes == (0, 0x87)
    assert answer.error.reason_code == ReasonCode.NOT_AUTHORIZED
    assert bench.session.requests.granted == ["a"]


def test_a_suback_with_too_few_codes_or_for_nothing_is_a_protocol_error() -> None:
    bench = Bench().connect()
    bench.subscribe("a", "b")
    with pytest.raises(ProtocolError):
        bench.session.on_packet(Suback(packet_identifier=1, reason_codes=[0]))
    with pytest.raises(ProtocolError):
        bench.session.on_packet(Suback(packet_identifier=5, reason_codes=[0]))


def test_publications_and_subscriptions_never_share_an_identifier() -> None:
    bench = Bench().connect()
    for _ in range(3):
        bench.publish()
        bench.subscribe("a")
    identifiers = [packet.packet_identifier for packet in bench.take_sent()]  # type: ignore[union-attr]
    assert len(set(identifiers)) == 6


def test_acknowledgements_leave_in_the_order_messages_came() -> None:
    bench = Bench().connect()
    for identifier in (5, 6, 7):
        bench.session.on_packet(Publish(topic="t", qos=1, packet_identifier=identifier))
    first, second, third = bench.messages
    second.ack()
    third.ack(0x80)
    assert bench.take_sent() == []
    first.ack()
    first.ack()
    assert bench.take_sent() == [
        Puback(packet_identifier=5),
        Puback(packet_identifier=6),
        Puback(packet_identifier=7, reason_code=0x80),
    ]


def test_a_repeated_qos_2_message_is_answered_and_not_delivered_twice() -> None:
    bench = Bench().connect()
    publish = Publish(topic="t", qos=2, packet_identifier=5)
    bench.session.on_packet(publish)
    bench.messages[0].ack()
    bench.session.on_packet(publish)
    bench.session.on_packet(Pubrel(packet_identifier=5))
    assert bench.take_sent() == [
        Pubrec(packet_identifier=5),
        Pubrec(packet_identifier=5),
        Pubcomp(packet_identifier=5),
    ]
    assert len(bench.messages) == 1


def test_a_resumed_session_delivers_again_what_was_not_acknowledged() -> None:
    bench = Bench().connect()
    for identifier in (5, 6):
        bench.session.on_packet(Publish(topic="t", qos=2, packet_identifier=identifier))
    taken = bench.messages[0]
    taken.ack()
    unacknowledged = bench.messages[1]
    bench.lose()
    bench.take_sent()
    bench.connect(session_present=True)
    assert bench.messages == [taken]
    for identifier in (5, 6):
        bench.session.on_packet(Publish(topic="t", qos=2, dup=True, packet_identifier=identifier))
    assert [message.receipt.packet_identifier for message in bench.messages if message.receipt] == [5, 6]
    assert bench.take_sent() == [Pubrec(packet_identifier=5)]
    unacknowledged.ack()
    assert bench.take_sent() == []


def test_more_than_our_receive_maximum_is_delivered_and_counted() -> None:
    bench = Bench(receive_maximum=2).connect()
    for identifier in (1, 2, 3):
        bench.session.on_packet(Publish(topic="t", qos=1, packet_identifier=identifier))
    assert len(bench.messages) == 3
    assert bench.session.receiver.over_receive_maximum == 1


def test_aliases_are_used_within_the_servers_maximum_and_forgotten_with_the_connection() -> None:
    bench = Bench(topic_aliases=10).connect(properties={Property.TOPIC_ALIAS_MAXIMUM: 1})
    for topic in ("a", "a", "b", "a"):
        bench.session.publisher.publish_qos0(Publish(topic=topic))
    assert [packet.topic for packet in bench.take_sent()] == ["a", "", "b", "a"]  # type: ignore[union-attr]
    bench.lose()
    bench.connect(properties={Property.TOPIC_ALIAS_MAXIMUM: 1})
    bench.session.publisher.publish_qos0(Publish(topic="a"))
    assert [packet.topic for packet in bench.take_sent()] == ["a"]  # type: ignore[union-attr]


def test_an_alias_of_the_caller_is_checked_and_its_topic_sent_once() -> None:
    bench = Bench().connect(properties={Property.TOPIC_ALIAS_MAXIMUM: 4})
    for _ in range(2):
        bench.session.publisher.publish_qos0(Publish(topic="a", properties={Property.TOPIC_ALIAS: 4}))
    assert [packet.topic for packet in bench.take_sent()] == ["a", ""]  # type: ignore[union-attr]
    with pytest.raises(TopicAliasInvalid):
        bench.session.publisher.publish_qos0(Publish(topic="a", properties={Property.TOPIC_ALIAS: 5}))


def test_aliases_of_the_server_are_resolved() -> None:
    bench = Bench(topic_alias_maximum=2).connect()
    bench.session.on_packet(Publish(topic="a", properties={Property.TOPIC_ALIAS: 2}))
    bench.session.on_packet(Publish(topic="", properties={Property.TOPIC_ALIAS: 2}))
    assert [message.topic for message in bench.messages] == ["a", "a"]
    for alias in (1, 3):
        with pytest.raises(TopicAliasInvalid):
            bench.session.on_packet(Publish(topic="", properties={Property.TOPIC_ALIAS: alias}))


def test_an_alias_is_not_taken_for_known_when_its_packet_could_not_be_sent() -> None:
    bench = Bench(topic_aliases=1).connect(
        properties={Property.TOPIC_ALIAS_MAXIMUM: 1, Property.MAXIMUM_PACKET_SIZE: 30}
    )
    with pytest.raises(PacketTooLarge):
        bench.session.publisher.publish_qos0(Publish(topic="a", payload=b"x" * 50))
    bench.session.publisher.publish_qos0(Publish(topic="a"))
    assert [packet.topic for packet in bench.take_sent()] == ["a"]  # type: ignore[union-attr]


def test_a_refused_connect_carries_reason_and_server_reference() -> None:
    with pytest.raises(ConnectRefused) as caught:
        Bench().connect(reason_code=0x9C, properties={Property.SERVER_REFERENCE: "other:1883"})
    assert caught.value.reason_code == ReasonCode.USE_ANOTHER_SERVER
    assert caught.value.server_reference == "other:1883"


def test_a_session_that_was_to_start_clean_must_not_be_present() -> None:
    with pytest.raises(ProtocolError):
        Bench().connect(session_present=True)


def test_later_connections_go_on_with_the_session_and_the_assigned_identifier() -> None:
    bench = Bench(client_id="").connect(properties={Property.ASSIGNED_CLIENT_IDENTIFIER: "given"})
    bench.lose()
    packet = bench.session.connect_packet()
    assert (packet.client_id, packet.clean_start) == ("given", False)


def test_a_disconnect_of_the_server_is_raised_with_its_reason() -> None:
    bench = Bench().connect()
    with pytest.raises(ServerDisconnected) as caught:
        bench.session.on_packet(Disconnect(reason_code=0x8B))
    assert caught.value.reason_code == ReasonCode.SERVER_SHUTTING_DOWN


def test_a_packet_no_server_sends_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        Bench().connect().session.on_packet(
            Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter="a")])
        )


def test_the_end_of_a_session_tells_everybody_who_waits() -> None:
    bench = Bench().connect(properties={Property.RECEIVE_MAXIMUM: 2})
    answers = [bench.publish(qos=2), bench.publish(), bench.publish(), bench.subscribe("a")]
    bench.session.on_packet(Pubrec(packet_identifier=1))
    bench.session.fail(NotConnected("over"))
    assert all(isinstance(answer.error, NotConnected) for answer in answers)
    assert not bench.session.has_open_exchanges
