"""One client's long work makes nobody else wait: a witness pings all the while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from tests.attack.conftest import RIGHTS, Dial, StartNode, Until, login
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import (
    Packet,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tidegate.mqtt.primitives import write_string, write_variable_byte_integer
from tidegate.mqtt.properties import Properties, Property
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

WORST = 1.0  # with the node in this very process, and others beside it; `test_turns` and `make attack` measure better
FILTERS = 9_900
LEVELS = 115
DEADLINE = 60.0
PAIR = b"\x26\0\0\0\0"  # an empty user property


class Witness:
    """Pings until it is left; `worst` is the longest that an answer took."""

    def __init__(self, client: RawClient) -> None:
        self.worst = 0.0
        self.count = 0
        client.timeout = DEADLINE
        client.connect("witness")
        self._client = client
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(0.002)
            began = time.monotonic()
            self._client.barrier()
            self.worst = max(self.worst, time.monotonic() - began)
            self.count += 1


@pytest.fixture
def node(start_node: StartNode) -> NodeThread:
    return start_node()


@pytest.fixture
def witness(node: NodeThread, dial: Dial) -> Iterator[Witness]:
    """The test fails if somebody kept it waiting."""
    with Witness(dial(node)) as witness:
        yield witness
    assert witness.count
    assert witness.worst < WORST


def _attacker(node: NodeThread, dial: Dial, version: int = 5) -> RawClient:
    client = dial(node, version)
    client.timeout = DEADLINE
    client.connect("attacker")
    return client


def _subscribe(filters: list[str], identifier: int = 0, retain_handling: int = 0) -> bytes:
    wanted = [Subscription(topic_filter=each, qos=1, retain_handling=retain_handling) for each in filters]
    properties: Properties = {Property.SUBSCRIPTION_IDENTIFIER: [identifier]} if identifier else {}
    return encode_packet(Subscribe(packet_identifier=1, subscriptions=wanted, properties=properties), 5)


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + write_variable_byte_integer(len(body)) + body


def _deep(number: int) -> str:
    """Filters of many levels that all match one topic, and share no long beginning with each other."""
    levels = ["l"] * LEVELS
    for bit in range(14):
        if number >> bit & 1:
            levels[bit * 8] = "+"
    levels[-1] = "#"
    return "/".join(levels)


@pytest.mark.parametrize("name", ["$share/g{}/a", "$share/g/a{}", "a/{}", "a/+/{}"])
def test_a_subscribe_of_thousands_of_filters(name: str, node: NodeThread, witness: Witness, dial: Dial) -> None:
    names = [name.format(number) for number in range(FILTERS)]
    attacker = _attacker(node, dial)
    attacker.send_bytes(_subscribe(names))
    answer = attacker.expect(Suback)
    assert answer.reason_codes == [1] * FILTERS
    attacker.send(Unsubscribe(packet_identifier=2, topic_filters=names))
    gone = attacker.expect(Unsuback)
    assert gone.reason_codes == [0] * FILTERS


def test_what_follows_a_long_subscribe_is_handled_behind_it(node: NodeThread, witness: Witness, dial: Dial) -> None:
    names = [f"a/{number}" for number in range(FILTERS)]
    attacker = _attacker(node, dial)
    last = names[-1]
    attacker.send_bytes(
        _subscribe(names)
        + encode_packet(Publish(topic=last, payload=b"1", qos=1, packet_identifier=1), 5)
        + encode_packet(Unsubscribe(packet_identifier=2, topic_filters=[last]), 5)
        + encode_packet(Publish(topic=last, payload=b"2", qos=1, packet_identifier=3), 5)
    )
    attacker.expect(Suback)
    first = attacker.expect(Publish, topic=last, payload=b"1")
    attacker.expect(Puback, packet_identifier=1)
    attacker.expect(Unsuback, reason_codes=[0])
    attacker.expect(Puback, packet_identifier=3, reason_code=ReasonCode.NO_MATCHING_SUBSCRIBERS)
    attacker.acknowledge(first)
    assert attacker.barrier() == []


def test_a_client_that_goes_in_the_midst_of_its_long_subscribe(
    node: NodeThread, witness: Witness, dial: Dial, until: Until
) -> None:
    attacker = _attacker(node, dial)
    attacker.send_bytes(_subscribe([f"$share/g{number}/a" for number in range(FILTERS)]))
    attacker.close()
    again = _attacker(node, dial)
    assert again.subscribe("b").reason_codes == [0]
    until(lambda: node.call(lambda: node.node.broker.core.index.count) == 1)


def test_a_member_that_joins_again_and_again(
    node: NodeThread, witness: Witness, dial: Dial, until: Until
) -> None:
    for number in range(100):
        subscribed = dial(node)
        subscribed.connect(f"member{number}")
        subscribed.subscribe("$share/g/a")
    attacker = _attacker(node, dial)
    data = _subscribe(["$share/g/a"]) * 20_000
    threading.Thread(target=attacker.send_bytes, args=(data,), daemon=True).start()
    most = 0
    for _ in range(20_000):
        attacker.expect(Suback)
        most = max(most, len(node.node.broker.core.long_work))
    assert most < 5
    until(lambda: not node.node.broker.core.long_work)


def test_filters_that_match_few_of_many_retained_topics(node: NodeThread, witness: Witness, dial: Dial) -> None:
    owner = dial(node)
    owner.timeout = DEADLINE
    owner.connect("owner")
    for number in range(2_000):
        owner.publish(f"t/{number}/x", b"1", retain=True)
    owner.barrier()
    attacker = _attacker(node, dial)
    attacker.send_bytes(_subscribe([f"+/+/y{number}" for number in range(2_000)]))
    attacker.expect(Suback)
    owner.subscribe("t/1/#")
    owner.take(Publish, topic="t/1/x")


@pytest.mark.parametrize("identifier", [0, 1])
def test_a_message_for_thousands_of_filters_of_many_levels(
    identifier: int, node: NodeThread, witness: Witness, dial: Dial
) -> None:
    attacker = _attacker(node, dial)
    for start in range(0, FILTERS, 3_000):
        filters = [_deep(number) for number in range(start, min(start + 3_000, FILTERS))]
        attacker.send_bytes(_subscribe(filters, identifier, retain_handling=2))
        attacker.expect(Suback)
    topic = "/".join(["l"] * LEVELS)
    publisher = dial(node)
    publisher.timeout = DEADLINE
    publisher.connect("publisher")
    for number in range(20):  # each on a topic of its own, which no cache holds
        publisher.publish(f"{topic}/{number}", b"%d" % number, qos=1)
        got = attacker.take(Publish, payload=b"%d" % number)
        assert len(got.properties.get(Property.SUBSCRIPTION_IDENTIFIER, ())) == identifier * FILTERS


def _publish_with_pairs(count: int) -> bytes:
    properties = PAIR * count
    return _packet(0x32, write_string("a") + b"\0\1" + write_variable_byte_integer(len(properties)) + properties)


def _puback_with_pairs(count: int) -> bytes:
    properties = PAIR * count
    return _packet(0x40, b"\0\1\0" + write_variable_byte_integer(len(properties)) + properties)


def _filters(count: int) -> bytes:
    return _packet(0x82, b"\0\1\0" + b"\0\1a\0" * count)


def _names(count: int) -> bytes:
    return _packet(0xA2, b"\0\1\0" + b"\0\1a" * count)


@pytest.mark.parametrize(
    ("make", "count"),
    [(_publish_with_pairs, 200_000), (_puback_with_pairs, 200_000), (_filters, 170_000), (_names, 200_000)],
)
def test_a_packet_with_more_parts_than_anybody_needs_is_refused(
    make: Callable[[int], bytes], count: int, node: NodeThread, witness: Witness, dial: Dial
) -> None:
    attacker = _attacker(node, dial)
    attacker.send_bytes(make(count))
    ended = attacker.expect_closed()
    assert ended is not None and ended.reason_code == ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize(("make", "answer"), [(_publish_with_pairs, Puback), (_filters, Suback)])
def test_many_packets_with_as_many_parts_as_are_allowed(
    make: Callable[[int], bytes], answer: type[Packet], node: NodeThread, witness: Witness, dial: Dial
) -> None:
    attacker = _attacker(node, dial)
    data = make(1_000) * 300
    threading.Thread(target=attacker.send_bytes, args=(data,), daemon=True).start()
    for _ in range(300):
        attacker.expect(answer)


def test_a_connect_with_thousands_of_user_properties_is_refused(node: NodeThread, dial: Dial) -> None:
    properties = PAIR * 25_000
    body = b"\0\4MQTT\5\2\0\0" + write_variable_byte_integer(len(properties)) + properties + b"\0\1a"
    with dial(node) as stranger:
        stranger.send_bytes(_packet(0x10, body))
        answer = stranger.receive()
        assert getattr(answer, "reason_code", None) == ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("topic", "payload"),
    [("$tide/load", b"1"), ("$tide/control/release", b'{"client": "owner", "seconds": 0}')],
)
def test_receive_maximum_holds_on_topics_of_the_node(
    topic: str, payload: bytes, start_node: StartNode, dial: Dial
) -> None:
    attacker = dial(start_node(RIGHTS, limits__receive_maximum=10))
    login(attacker, "owner")
    attacker.publish("a", b"1", qos=1)  # now it is a publisher, who can be released
    for number in range(1, 12):
        attacker.send(Publish(topic=topic, payload=payload, qos=2, packet_identifier=number))
    for number in range(1, 11):
        attacker.expect(Pubrec, packet_identifier=number, reason_code=ReasonCode.SUCCESS)
    ended = attacker.expect_closed()
    assert ended is not None and ended.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_identifiers_without_end_on_load_reports(node: NodeThread, witness: Witness, dial: Dial) -> None:
    attacker = _attacker(node, dial, version=4)
    sent = [
        encode_packet(Publish(topic="$tide/load", payload=b"1", qos=2, packet_identifier=number), 4)
        for number in range(1, 40_001)
    ]
    attacker.send_bytes(b"".join(sent))
    assert len(attacker.barrier()) == 40_000
