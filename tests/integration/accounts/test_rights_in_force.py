"""The rights file in force: publishing, subscribing and what is delivered."""

import pytest

from tests.integration.accounts.conftest import Dial, Serve, Served, Write
from tidegate.mqtt import Publish
from tidegate.testing.raw import RawClient

NOT_AUTHORIZED = 0x87
RIGHTS = """
user ada
topic plant/#
topic deny plant/keys/#
topic read $SYS/broker/uptime

user bob
topic read plant/+/temperature
topic read plant/end
topic write plant/#

pattern readwrite client/%c/#
"""


@pytest.fixture
def served(serve: Serve, rights_file: Write) -> Served:
    return serve(rights_file=rights_file(RIGHTS))


def ada(served: Served, dial: Dial, version: int = 5, client_id: str = "ada-1") -> RawClient:
    client = dial(served, version)
    assert client.connect(client_id, username="ada", password=b"secret").reason_code == 0
    return client


def bob(served: Served, dial: Dial, version: int = 5) -> RawClient:
    client = dial(served, version)
    assert client.connect("bob-1", username="bob", password=b"other").reason_code == 0
    return client


def topics_until(client: RawClient, last: str) -> list[str]:
    """Topics delivered up to and including `last`; the broker delivers in order, so what is missing was left out."""
    topics: list[str] = []
    while not topics or topics[-1] != last:
        topics.append(client.take(Publish).topic)
    return topics


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_wildcard_over_denied_topics_brings_the_others(
    served: Served, dial: Dial, version: int, qos: int
) -> None:
    reader, writer = ada(served, dial, version), bob(served, dial, version)
    assert reader.subscribe("plant/#", qos).reason_codes == [qos]
    for topic in ("plant/a", "plant/keys", "plant/keys/x", "plant/b", "plant/keys/x", "plant/end"):
        writer.publish(topic, b"x", qos)
    got: list[str] = []
    while "plant/end" not in got:
        message = reader.take(Publish)
        reader.acknowledge(message)
        got.append(message.topic)
    assert got == ["plant/a", "plant/b", "plant/end"]


def test_retained_messages_are_filtered_too(served: Served, dial: Dial) -> None:
    writer = bob(served, dial)
    for topic in ("plant/a", "plant/keys/x", "plant/1/temperature"):
        writer.publish(topic, b"x", 1, retain=True)
    reader = ada(served, dial)
    reader.subscribe("#")
    writer.publish("plant/end", b"x", 1)
    assert sorted(topics_until(reader, "plant/end")) == ["plant/1/temperature", "plant/a", "plant/end"]


def test_subscriptions_that_could_bring_nothing_are_refused(served: Served, dial: Dial) -> None:
    client = ada(served, dial)
    for topic_filter in (
        "other/#", "plant/keys/#", "plant/keys", "$share/g/plant/keys/+", "$SYS/broker/version",
        "client/ada-2/#",
    ):  # fmt: skip
        assert client.subscribe(topic_filter).reason_codes == [NOT_AUTHORIZED], topic_filter
    for topic_filter in ("#", "+/keys", "plant/+", "$share/g/plant/#", "$SYS/#", "client/ada-1/#"):
        expected = NOT_AUTHORIZED if topic_filter == "+/keys" else 0
        # "+/keys" overlaps plant/keys, which is denied, and nothing else that may be read
        assert client.subscribe(topic_filter).reason_codes == [expected], topic_filter


def test_a_denied_publish_is_answered_and_reaches_nobody(served: Served, dial: Dial) -> None:
    reader, writer = bob(served, dial), ada(served, dial)
    reader.subscribe("plant/#")
    for qos in (1, 2):
        answer = writer.publish("plant/keys/temperature", b"x", qos)
        assert answer is not None and answer.reason_code == NOT_AUTHORIZED
    writer.publish("plant/keys/temperature", b"x")
    writer.publish("plant/end", b"x")
    assert topics_until(reader, "plant/end") == ["plant/end"]


def test_a_client_identifier_with_wildcards_opens_nothing(served: Served, dial: Dial) -> None:
    for client_id in ("+", "#", "ada-1/x", "../ada-1"):
        client = ada(served, dial, client_id=client_id)
        assert client.subscribe("client/#").reason_codes == [NOT_AUTHORIZED]
        answer = client.publish("client/ada-1/x", b"", 1)
        assert answer is not None and answer.reason_code == NOT_AUTHORIZED


def test_new_rights_hold_for_connected_clients_after_a_reload(
    served: Served, dial: Dial, rights_file: Write
) -> None:
    reader, writer = ada(served, dial), bob(served, dial)
    reader.subscribe("#")
    writer.publish("plant/a", b"x", 1)
    assert topics_until(reader, "plant/a") == ["plant/a"]
    rights_file("user ada\ntopic read plant/end\nuser bob\ntopic write plant/#\n")
    served.reload()
    writer.publish("plant/a", b"x", 1)
    writer.publish("plant/end", b"x", 1)
    assert topics_until(reader, "plant/end") == ["plant/end"]
    answer = reader.publish("plant/a", b"x", 1)
    assert answer is not None and answer.reason_code == NOT_AUTHORIZED


def test_without_a_rights_file_everyone_who_is_let_in_may_do_everything(serve: Serve, dial: Dial) -> None:
    client = ada(serve(), dial)
    assert client.subscribe("anything/#").reason_codes == [0]
    client.publish("anything/x", b"x", 1)
    client.take(Publish, topic="anything/x")


def test_strict_subscriptions_must_be_readable_as_a_whole(
    serve: Serve, dial: Dial, rights_file: Write
) -> None:
    client = ada(serve(rights_file=rights_file(RIGHTS), subscribe_strict=True), dial)
    assert client.subscribe("plant/#").reason_codes == [NOT_AUTHORIZED]
    assert client.subscribe("plant/a/#").reason_codes == [0]
