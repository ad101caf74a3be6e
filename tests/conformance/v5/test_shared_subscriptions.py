"""MQTT 5 section 4.8.2: shared subscriptions."""

from collections.abc import Callable

import pytest

from tests.conformance.v5.conftest import Join
from tests.conformance.v5.steps import expect_filter_refused
from tidegate.mqtt import Property, Puback, Publish, Pubrec, Pubrel, ReasonCode
from tidegate.testing.raw import RawClient

KEEP = {Property.SESSION_EXPIRY_INTERVAL: 300}


def receiver_of(members: list[RawClient]) -> tuple[RawClient, Publish]:
    """The one member that got the message just published."""
    received = [(m, p) for m in members for p in m.barrier() if isinstance(p, Publish)]
    assert len(received) == 1
    return received[0]


@pytest.mark.parametrize("topic_filter", ["$share//a", "$share/", "$share/group"])
def test_MQTT_4_8_2_1_a_share_name_has_at_least_one_character(join: Join, topic_filter: str) -> None:
    expect_filter_refused(join(), topic_filter)


def test_MQTT_4_8_2_1_members_of_a_group_share_the_messages(
    join: Join, unique: Callable[[str], str], topic: str
) -> None:
    members = [join(f"member-{number}") for number in range(3)]
    for member in members:
        member.subscribe(f"$share/{unique('g')}/{topic}", qos=1)
    publisher = join("publisher")
    for number in range(30):
        publisher.publish(topic, b"%d" % number, qos=1)
    seen = []
    for member in members:
        for packet in member.barrier():
            assert isinstance(packet, Publish)
            seen.append(int(packet.payload))
    assert sorted(seen) == list(range(30))


def test_MQTT_4_8_2_1_two_groups_and_a_plain_subscriber_each_get_the_message(join: Join, topic: str) -> None:
    clients = [join("one"), join("two"), join("plain")]
    for client, topic_filter in zip(
        clients, (f"$share/one/{topic}", f"$share/two/{topic}", topic), strict=True
    ):
        client.subscribe(topic_filter)
    join("publisher").publish(topic, b"for all", qos=1)
    for client in clients:
        client.expect(Publish, payload=b"for all")
        assert client.barrier() == []


@pytest.mark.parametrize(
    "topic_filter", ["$share/g+/a", "$share/#/a", "$share/+/a", "$share/g/", "$share/g#"]
)
def test_MQTT_4_8_2_2_a_share_name_has_no_wildcards_and_is_followed_by_a_filter(
    join: Join, topic_filter: str
) -> None:
    expect_filter_refused(join(), topic_filter)


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_MQTT_4_8_2_3_each_member_gets_messages_with_the_qos_it_was_granted(
    join: Join, topic: str, granted: int
) -> None:
    member = join("member")
    member.subscribe(f"$share/group/{topic}", qos=granted)
    join("publisher").publish(topic, b"x", qos=2)
    member.expect(Publish, qos=granted)


def test_MQTT_4_8_2_4_a_delivery_of_qos_2_that_began_is_completed_with_the_same_member(
    join: Join, topic: str
) -> None:
    members = [join(f"member-{number}", properties=KEEP) for number in range(2)]
    for member in members:
        member.subscribe(f"$share/group/{topic}", qos=2)
    join("publisher").publish(topic, b"mine", qos=2)
    chosen, message = receiver_of(members)
    assert message.packet_identifier is not None
    name = "member-0" if chosen is members[0] else "member-1"
    chosen.close()
    chosen = join(name, clean_start=False, properties=KEEP)
    chosen.expect(Publish, payload=b"mine", dup=True, packet_identifier=message.packet_identifier)
    chosen.send(Pubrec(packet_identifier=message.packet_identifier))
    chosen.expect(Pubrel, packet_identifier=message.packet_identifier)
    chosen.close()
    chosen = join(name, clean_start=False, properties=KEEP)
    chosen.expect(Pubrel, packet_identifier=message.packet_identifier)
    others = [member for member in members if name not in member.client_id]
    assert [member.barrier() for member in others] == [[]]


def test_MQTT_4_8_2_5_a_message_of_qos_2_is_not_given_to_another_member_when_the_session_ends(
    join: Join, topic: str
) -> None:
    members = [join(f"member-{number}") for number in range(2)]
    for member in members:
        member.subscribe(f"$share/group/{topic}", qos=2)
    join("publisher").publish(topic, b"lost", qos=2)
    chosen, _ = receiver_of(members)
    chosen.disconnect()
    (other,) = [member for member in members if member is not chosen]
    other.expect_nothing(0.3)
    assert other.barrier() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_MQTT_4_8_2_6_a_message_refused_by_a_member_is_not_given_to_another(
    join: Join, topic: str, qos: int
) -> None:
    members = [join(f"member-{number}") for number in range(2)]
    for member in members:
        member.subscribe(f"$share/group/{topic}", qos=qos)
    join("publisher").publish(topic, b"refused", qos=qos)
    chosen, message = receiver_of(members)
    assert message.packet_identifier is not None
    refusal = Puback if qos == 1 else Pubrec
    chosen.send(
        refusal(packet_identifier=message.packet_identifier, reason_code=ReasonCode.UNSPECIFIED_ERROR)
    )
    assert chosen.barrier() == []
    (other,) = [member for member in members if member is not chosen]
    other.expect_nothing(0.3)
    assert other.barrier() == []
