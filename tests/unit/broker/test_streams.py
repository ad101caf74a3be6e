"""One stream of packets, however it is cut and whichever path it takes through the broker, has one outcome."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.strategies import cut, payloads
from tests.unit.broker.memory import Peer, Room, run
from tidegate.broker.connection import Connection
from tidegate.broker.hooks import Hooks
from tidegate.broker.lanes import PART
from tidegate.broker.message import Message
from tidegate.broker.session import Session
from tidegate.mqtt import (
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    encode_packet,
)
from tidegate.mqtt.properties import Properties, Property

TOPICS = ["a", "a/b", "b", "c/d/e"]


class Everything:
    """Rights for all: what is decided is the same, but every connection keeps routes of its own."""

    def may_publish(self, client: Connection, topic: str) -> bool:
        return True

    def may_subscribe(self, client: Connection, topic_filter: str) -> bool:
        return True

    def may_receive(self, session: Session, topic: str) -> bool:
        return True


class Watch:
    """An observer turns the quick way for QoS 1 and 2 off."""

    def __init__(self) -> None:
        self.seen = 0

    def on_run(self, client: Connection, packets: bytes, count: int) -> None:
        self.seen += count

    def on_message(self, client: Connection, message: Message) -> None:
        self.seen += 1


@dataclass
class Outcome:
    subscribers: list[bytes]  # exactly these bytes, by subscriber
    own: list[tuple[str, bytes, int]]  # what the publisher was sent of its own messages
    answers: Counter[str]
    order_of_answers: dict[type, list[int]]


@st.composite
def publishes(draw: st.DrawFn, version: int, pid: int) -> Publish:
    qos = draw(st.integers(0, 2))
    props: Properties = {}
    if version == 5 and draw(st.integers(0, 3)) == 0:
        props = draw(
            st.sampled_from(
                [
                    {Property.TOPIC_ALIAS: 1},
                    {Property.USER_PROPERTY: [("k", "v"), ("k", "w")]},
                    {Property.MESSAGE_EXPIRY_INTERVAL: 1_000},
                    {Property.CONTENT_TYPE: "x" * 130, Property.TOPIC_ALIAS: 2},
                ]
            )
        )
    return Publish(
        topic=draw(st.sampled_from(TOPICS)),
        payload=draw(payloads | st.just(b"same size")),
        qos=qos,
        packet_identifier=pid if qos else None,
        properties=dict(props),
    )


@st.composite
def histories(draw: st.DrawFn, version: int) -> list[Packet]:
    """What a client may send in one go. It need not wait for PUBREC in the eyes of the one who answers."""
    packets: list[Packet] = []
    open_qos2: list[int] = []
    for pid in range(1, draw(st.integers(2, 25))):
        kind = draw(st.integers(0, 9))
        if kind < 6:
            packet: Packet = draw(publishes(version, pid))
            packets.extend(
                [packet]
                * (draw(st.sampled_from([1, 1, 3])) if isinstance(packet, Publish) and not packet.qos else 1)
            )
            if isinstance(packet, Publish) and packet.qos == 2:
                open_qos2.append(pid)
        elif kind == 6 and open_qos2:
            packets.append(Pubrel(packet_identifier=open_qos2.pop(0)))
        elif kind == 7:
            wanted = Subscription(
                topic_filter=draw(st.sampled_from([*TOPICS, "a/#", "+", "$share/g/b"])),
                qos=draw(st.integers(0, 2)),
            )
            packets.append(Subscribe(packet_identifier=pid, subscriptions=[wanted]))
        elif kind == 8:
            packets.append(
                Unsubscribe(
                    packet_identifier=pid, topic_filters=[draw(st.sampled_from([*TOPICS, "+", "$share/g/b"]))]
                )
            )
        else:
            packets.append(Pingreq())
    return packets


async def outcome(version: int, pieces: list[bytes], listeners: list[int], hooks: Hooks) -> Outcome:
    room = await Room.open(hooks=hooks)
    subscribers: list[Peer] = []
    for number, level in enumerate(listeners):
        peer = await room.connect(f"listener-{number}", level)
        peer.subscribe(["#", "a/#", "+"][number % 3], qos=2 - number % 2)
        subscribers.append(peer)
    publisher = await room.connect("publisher", version)
    await room.settle()
    for peer in [*subscribers, publisher]:
        peer.forget()
    for piece in pieces:
        publisher.transport.write(piece)
        await room.settle()
    assert not publisher.is_lost, "the stream is legal"
    order: dict[type, list[int]] = {}
    for packet in publisher.packets:
        if isinstance(packet, Puback | Pubrec | Pubcomp):
            order.setdefault(type(packet), []).append(packet.packet_identifier)
    answers = Counter(repr(p) for p in publisher.packets if not isinstance(p, Publish))
    await room.close()
    return Outcome([bytes(p.received) for p in subscribers], publisher.messages(), answers, order)


streams = st.sampled_from([4, 5]).flatmap(lambda version: st.tuples(st.just(version), histories(version)))
audiences = st.sampled_from([[], [4], [5], [4, 5], [5, 5], [4, 4, 4], [5, 4, 5]])
# The shape that shows whether an answer kept from before is used after the client itself changed it.
STALE: tuple[int, list[Packet]] = (
    5,
    [
        Publish(topic="b", payload=b"1"),
        Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter="$share/g/b", qos=1)]),
        Publish(topic="b", payload=b"2"),
        Unsubscribe(packet_identifier=2, topic_filters=["$share/g/b"]),
        Publish(topic="b", payload=b"3"),
    ],
)


def encoded(stream: tuple[int, list[Packet]]) -> bytes:
    return b"".join(encode_packet(packet, stream[0]) for packet in stream[1])


@settings(max_examples=60)
@given(streams, audiences, st.data())
def test_any_split_of_the_bytes_has_the_same_outcome(
    stream: tuple[int, list[Packet]], audience: list[int], data: st.DataObject
) -> None:
    whole = encoded(stream)
    pieces = [piece for piece in data.draw(cut(whole)) if piece]
    at_once = run(outcome(stream[0], [whole], audience, Hooks()))
    assert run(outcome(stream[0], pieces, audience, Hooks())) == at_once


@settings(max_examples=15)
@given(streams, audiences)
def test_byte_by_byte_has_the_same_outcome_as_at_once(
    stream: tuple[int, list[Packet]], audience: list[int]
) -> None:
    whole = encoded(stream)[:600]
    single = [whole[i : i + 1] for i in range(len(whole))]
    assert run(outcome(stream[0], single, audience, Hooks())) == run(
        outcome(stream[0], [whole], audience, Hooks())
    )


@settings(max_examples=60)
@given(streams, audiences)
def test_the_general_path_has_the_same_outcome_as_the_quick_one(
    stream: tuple[int, list[Packet]], audience: list[int]
) -> None:
    whole = encoded(stream)
    watch = Watch()
    quick = run(outcome(stream[0], [whole], audience, Hooks()))
    general = run(outcome(stream[0], [whole], audience, Hooks(publish_observers=(watch,))))
    assert general == quick
    assert watch.seen == sum(1 for packet in stream[1] if isinstance(packet, Publish)), "each message once"


@settings(max_examples=60)
@given(streams, audiences)
@example(STALE, [])
def test_rights_that_allow_everything_change_nothing(
    stream: tuple[int, list[Packet]], audience: list[int]
) -> None:
    whole = encoded(stream)
    free = run(outcome(stream[0], [whole], audience, Hooks()))
    assert run(outcome(stream[0], [whole], audience, Hooks(authoriser=Everything()))) == free


def test_a_chunk_of_many_turns_is_handled_in_order_and_completely() -> None:
    async def main() -> None:
        room = await Room.open()
        subscriber = await room.connect("s", 4)
        subscriber.subscribe("t/#", qos=1)
        publisher = await room.connect("p", 4)
        await room.settle()
        subscriber.forget()
        packets = [
            Publish(
                topic=f"t/{i % 7}",
                payload=b"%d " % i + bytes(i % 400),
                qos=i % 2,
                packet_identifier=i + 1 if i % 2 else None,
            )
            for i in range(2_000)
        ]
        data = b"".join(encode_packet(packet, 4) for packet in packets)
        assert len(data) > 4 * PART
        room.connection("p").data_received(data)
        acknowledged = 0
        for _ in range(2_000):
            await room.settle()
            waiting = subscriber.of(Publish)[acknowledged:]
            if not waiting:
                break
            acknowledged += len(waiting)
            subscriber.send(*(Puback(packet_identifier=p.packet_identifier or 0) for p in waiting if p.qos))
        for qos in (0, 1):
            wanted = [(p.topic, p.payload, p.qos) for p in packets if p.qos == qos]
            assert [m for m in subscriber.messages() if m[2] == qos] == wanted
        assert [p.packet_identifier for p in publisher.of(Puback)] == [
            p.packet_identifier for p in packets if p.qos
        ]
        await room.close()

    run(main())


def test_a_packet_larger_than_a_turn_arrives_however_it_is_dribbled() -> None:
    async def main() -> None:
        room = await Room.open()
        subscriber = await room.connect("s", 5)
        subscriber.subscribe("big", qos=1)
        publisher = await room.connect("p", 5)
        await room.settle()
        payload = bytes(range(256)) * 1_000
        data = encode_packet(Publish(topic="big", payload=payload, qos=1, packet_identifier=9), 5) * 2
        for start in range(0, len(data), 10_007):
            publisher.transport.write(data[start : start + 10_007])
            await room.settle()
        assert subscriber.messages() == [("big", payload, 1)] * 2
        assert len(publisher.of(Puback)) == 2
        assert not room.core.unfinished
        await room.close()

    run(main())


# A Remaining Length of two bytes where one is enough: alone, behind a proper packet of its kind, and one whose bytes
# would be a small PUBLISH to "t" if the first of them were the whole length.
OVERLONG = [
    pytest.param(4, b"\x30\x86\x00\x00\x01txyz", id="QoS 0"),
    pytest.param(5, b"\x30\x87\x00\x00\x01t\x00xyz", id="QoS 0, MQTT 5"),
    pytest.param(5, b"\x30\x8d\x00\x00\x01t\x85\x00\x03\x00\x02ABxyz", id="properties"),
    pytest.param(4, b"\x32\x88\x00\x00\x01t\x00\x07xyz", id="QoS 1"),
    pytest.param(
        4,
        b"\x32\x08\x00\x01t\x00\x07xyz" + b"\x32\x88\x00\x00\x01t\x00\x08xyz",
        id="behind QoS 1",
    ),
    pytest.param(
        5,
        b"\x34\x09\x00\x01t\x00\x07\x00xyz" + b"\x34\x89\x00\x00\x01t\x00\x08\x00xyz",
        id="behind QoS 2",
    ),
    pytest.param(
        4,
        b"\x30\x85\x00\x01t" + bytes(130),
        id="single",
    ),
]


@pytest.mark.parametrize(("version", "packet"), OVERLONG)
def test_what_a_subscriber_gets_is_well_formed_whatever_lengths_the_publisher_writes(
    version: int, packet: bytes
) -> None:
    """[MQTT5-1.5.5-1]: one publisher could otherwise end, or forge, what others receive."""

    async def main() -> None:
        room = await Room.open()
        subscriber = await room.connect("s", version)
        subscriber.subscribe("t", qos=2)
        publisher = await room.connect("p", version)
        publisher.send(Publish(topic="t", payload=b"first"))
        await room.settle()
        subscriber.forget()
        publisher.transport.write(packet)
        await room.settle()
        assert not subscriber.is_lost
        assert bytes(subscriber.received) == b"".join(encode_packet(p, version) for p in subscriber.packets)
        await room.close()

    run(main())


def test_a_connection_counts_what_it_sends_and_not_what_nobody_gets() -> None:
    async def main() -> None:
        room = await Room.open()
        subscriber = await room.connect("s", 4, clean_start=False)
        subscriber.subscribe("t")
        await room.settle()
        publisher = await room.connect("p", 4)
        publisher.send(*[Publish(topic="t", payload=b"1")] * 3)
        await room.settle()
        assert room.core.counters.publish_sent == 3
        subscriber.transport.abort()
        await room.settle()
        publisher.send(*[Publish(topic="t", payload=b"1")] * 3)
        await room.settle()
        assert room.core.counters.publish_received == 6
        assert room.core.counters.publish_sent == 3, "QoS 0 for a client that is away is not sent"
        await room.close()

    run(main())
