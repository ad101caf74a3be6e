"""What attackers send: endless streams of bytes, each made from a seed. None of them knows the node from inside.

A stream is a generator; it is asked for its next chunk when the last one is sent. Those in `BEFORE` begin with the
first byte of a connection, those in `AFTER` behind a CONNECT that was accepted. `FRAMES` are sent as they are on a
WebSocket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple, TypeAlias

from bench.attack.wires import BINARY, frame
from tidegate.load.packets import encode_length
from tidegate.mqtt import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Property,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode_packet,
)


class By(NamedTuple):
    """Whose stream it is: one of several connections, each with chance of its own."""

    random: Random
    number: int


Stream: TypeAlias = Callable[[By], Iterator[bytes]]

HOME = "public"  # where the attacker may read and write
LOGIN = ("mallory", b"mallory")


def connect(client_id: str, *, keeps: bool = True, **fields: object) -> bytes:
    """CONNECT as the attacker."""
    properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: 600} if keeps else {}
    given = {"clean_start": False, "keep_alive": 0, "properties": properties}
    given |= {"username": LOGIN[0], "password": LOGIN[1]}
    return encode_packet(Connect(client_id=client_id, **(given | fields)), 5)  # type: ignore[arg-type]


def subscribe(*topic_filters: str, qos: int = 0) -> bytes:
    wanted = [Subscription(topic_filter=each, qos=qos) for each in topic_filters]
    return encode_packet(Subscribe(packet_identifier=1, subscriptions=wanted), 5)


def publish(topic: str, payload: bytes = b"", qos: int = 0, number: int = 1, **fields: object) -> bytes:
    identifier = number % 65_535 + 1 if qos else None
    given = {"topic": topic, "payload": payload, "qos": qos, "packet_identifier": identifier}
    return encode_packet(Publish(**(given | fields)), 5)  # type: ignore[arg-type]


def _name(random: Random, longest: int = 12) -> str:
    return "".join(random.choices("abcdefgh", k=random.randint(1, longest)))


def _topic(random: Random, levels: int = 4) -> str:
    return "/".join([HOME, *(_name(random) for _ in range(random.randint(1, levels)))])


def _filter(random: Random, levels: int = 5) -> str:
    parts = [random.choice(("+", _name(random, 2), _name(random))) for _ in range(random.randint(1, levels))]
    if random.random() < 0.3:
        parts.append("#")
    text = "/".join([HOME, *parts])
    return f"$share/{_name(random, 2)}/{text}" if random.random() < 0.2 else text


def _payload(random: Random) -> bytes:
    return bytes(random.choice((0, 1, 10, 100, 1_000, 10_000, 100_000)))


def _pairs(random: Random) -> list[tuple[str, str]]:
    return [(_name(random), _name(random, 40))] * random.choice((0, 1, 10, 100))


# -- before CONNECT is accepted -----------------------------------------------------------------------------


def noise(by: By) -> Iterator[bytes]:
    while True:
        yield by.random.randbytes(by.random.choice((1, 100, 10_000)))


def silence(_by: By) -> Iterator[bytes]:
    yield b"\x10"
    while True:
        yield b""


def half_a_connect(by: By) -> Iterator[bytes]:
    """Of as much as is allowed, a few bytes at a time."""
    yield b"\x10" + encode_length(131_000) + b"\0\4MQTT\5\2\0\0"
    while True:
        yield bytes(by.random.choice((1, 1_000, 60_000)))


def rich_connects(by: By) -> Iterator[bytes]:
    """User properties, wills and names, from none to too many."""
    while True:
        properties: Properties = {Property.USER_PROPERTY: [("a", "b")] * by.random.choice((0, 100, 101, 20_000))}
        will = Will(topic=_topic(by.random), payload=bytes(by.random.choice((0, 60_000))), properties=properties)
        name = "x" * by.random.choice((1, 1_000, 60_000)) + str(by.number)
        yield encode_packet(Connect(client_id=name, properties=properties, will=by.random.choice((None, will))), 5)


def wrong_passwords(by: By) -> Iterator[bytes]:
    while True:
        yield encode_packet(Connect(client_id=f"w{by.number}", username="costly", password=by.random.randbytes(8)), 5)


def comers_and_goers(by: By) -> Iterator[bytes]:
    while True:
        yield connect(f"g{by.random.randrange(500)}", keeps=by.random.random() < 0.5) + encode_packet(Disconnect(), 5)


def unknown_methods(by: By) -> Iterator[bytes]:
    while True:
        properties: Properties = {Property.AUTHENTICATION_METHOD: _name(by.random)}
        yield encode_packet(Connect(client_id="u", properties=properties), 5) + encode_packet(Auth(), 5) * 100


# -- as a client --------------------------------------------------------------------------------------------


def _any_packet(random: Random) -> Packet:
    identifier = random.randint(1, 65_535)
    qos = random.randrange(3)
    some: Properties = {Property.USER_PROPERTY: _pairs(random)}
    makers: tuple[Callable[[], Packet], ...] = (
        lambda: Publish(
            topic=_topic(random), payload=_payload(random), qos=qos, packet_identifier=identifier if qos else None,
            retain=random.random() < 0.2, properties=some,
        ),
        lambda: Subscribe(
            packet_identifier=identifier,
            subscriptions=[Subscription(topic_filter=_filter(random), qos=qos) for _ in range(random.randint(1, 50))],
        ),
        lambda: Unsubscribe(packet_identifier=identifier, topic_filters=[_filter(random) for _ in range(20)]),
        lambda: Puback(packet_identifier=identifier, properties=some),
        lambda: Pubrec(packet_identifier=identifier, properties=some),
        lambda: Pubrel(packet_identifier=identifier),
        lambda: Pubcomp(packet_identifier=identifier),
        Pingreq,
    )  # fmt: skip
    return random.choice(makers)()


def packets_of_all_kinds(by: By) -> Iterator[bytes]:
    while True:
        yield b"".join(encode_packet(_any_packet(by.random), 5) for _ in range(20))


def damaged_packets(by: By) -> Iterator[bytes]:
    """A byte changed here and there; the connection ends with the first that matters."""
    while True:
        data = bytearray(b"".join(encode_packet(_any_packet(by.random), 5) for _ in range(20)))
        data[by.random.randrange(len(data))] = by.random.randrange(256)
        yield bytes(data)


def one_tiny_packet(by: By) -> Iterator[bytes]:
    packet = by.random.choice((
        b"\xc0\0", b"\x62\2\0\1", b"\x40\2\0\1", b"\x50\2\0\1", b"\x70\2\0\1", b"\x82\7\0\1\0\0\1a\0",
        b"\xa2\6\0\1\0\0\1a", publish(f"{HOME}/a"), publish(f"{HOME}/a", retain=True), publish(f"{HOME}/a", qos=1),
        publish("$tide/load", b'{"w":1}'), publish("forbidden"),
    ))  # fmt: skip
    while True:
        yield packet * 2_000


def endless_topics(by: By) -> Iterator[bytes]:
    retain = by.random.random() < 0.5
    while True:
        yield b"".join(publish(_topic(by.random, 6), b"x", retain=retain) for _ in range(200))


def retained_messages(by: By) -> Iterator[bytes]:
    while True:
        payload = bytes(by.random.choice((1, 100, 60_000, 500_000)))
        topic = f"{HOME}/{by.number}/{by.random.randrange(5_000)}"
        yield publish(topic, payload, by.random.randrange(2), retain=True)


def subscriptions(by: By) -> Iterator[bytes]:
    while True:
        count = by.random.choice((1, 100, 3_000, 9_900))
        levels = by.random.choice((3, 3, 100))
        yield subscribe(*(_filter(by.random, levels) for _ in range(count)), qos=by.random.randrange(3))


def long_filters(by: By) -> Iterator[bytes]:
    while True:
        yield subscribe(f"{HOME}/{by.random.randrange(10_000)}/{'x' * by.random.choice((1_000, 60_000))}")


def everything_to_itself(by: By) -> Iterator[bytes]:
    """Many filters that match alike, and messages for them."""
    yield subscribe(*(f"{HOME}/{'+/' * depth}#" for depth in range(20)), *(f"$share/g{n}/{HOME}/#" for n in range(200)))
    while True:
        yield publish(_topic(by.random), _payload(by.random), by.random.randrange(3), by.random.randrange(60_000))


def deep_topics(by: By) -> Iterator[bytes]:
    yield subscribe(*(f"{HOME}/{'+/' * by.random.randrange(100)}{_name(by.random)}/#" for _ in range(500)))
    while True:
        yield publish("/".join([HOME, *("a" for _ in range(by.random.randrange(120)))]))


def never_released(by: By) -> Iterator[bytes]:
    for each in range(1, 60_000):
        yield publish(f"{HOME}/q", bytes(by.random.choice((1, 5_000))), 2, each)


def aliases(by: By) -> Iterator[bytes]:
    while True:
        topic = by.random.choice(("", f"{HOME}/{'x' * by.random.choice((1, 1_000, 30_000))}"))
        yield publish(topic, properties={Property.TOPIC_ALIAS: by.random.randint(1, 32)})


def property_lists(by: By) -> Iterator[bytes]:
    while True:
        pairs = [("n", "v" * by.random.choice((0, 30)))] * by.random.choice((1, 999, 1_000))
        yield publish(f"{HOME}/p", b"x", properties={Property.USER_PROPERTY: pairs}, retain=by.random.random() < 0.1)


def incomplete_packets(by: By) -> Iterator[bytes]:
    yield b"\x30" + encode_length(1_040_000) + b"\0\1a"
    while True:
        yield bytes(by.random.choice((1, 1_000, 60_000)))


def orders_and_reports(by: By) -> Iterator[bytes]:
    """Topics of the node: nobody but an operator may give orders."""
    while True:
        topic = by.random.choice((
            "$tide/load", "$tide/ready", "$tide/control/end", "$tide/control/release", "$tide/control/drain",
            "$tide/link/x", "$tide/move/x", "$tide/space/x", "$SYS/broker/uptime", "$rpc/x", "$other",
        ))  # fmt: skip
        body = by.random.choice((b"{}", b'{"client":"witness"}', b"[" * 5_000, by.random.randbytes(20), b"x" * 50_000))
        yield publish(topic, body, by.random.randrange(3), by.random.randrange(60_000)) + subscribe(topic, "$SYS/#")


def will_changes(by: By) -> Iterator[bytes]:
    """A second CONNECT ends the connection; the will of the first is published."""
    while True:
        yield publish(f"{HOME}/w", bytes(10_000), retain=True) + connect(f"m{by.number}")


def a_reader_of_the_node(_by: By) -> Iterator[bytes]:
    """Asks for all that the node says of itself, again and again."""
    while True:
        yield subscribe("$SYS/#", "#", "$tide/#", "$SYS/tide/publishers/all") + b"\xa2\x0b\0\1\0\0\x06$SYS/#"


# -- on a WebSocket -----------------------------------------------------------------------------------------


def odd_frames(by: By) -> Iterator[bytes]:
    kind = by.random.choice((0x89, 0x8A, BINARY, 0x02, 0x00, 0x81, 0xC2, 0x88))
    size = by.random.choice((0, 1, 125))
    first = frame(b"\xc0\0", 0x02) if kind == 0x00 else b""
    yield first
    while True:
        yield frame(b"\xc0" * (size & ~1), kind & (0x7F if by.random.random() < 0.01 else 0xFF)) * 2_000


BEFORE: dict[str, Stream] = {
    each.__name__: each
    for each in (
        noise, silence, half_a_connect, rich_connects, wrong_passwords, comers_and_goers, unknown_methods,
    )
}  # fmt: skip
AFTER: dict[str, Stream] = {
    each.__name__: each
    for each in (
        packets_of_all_kinds, damaged_packets, one_tiny_packet, endless_topics, retained_messages, subscriptions,
        long_filters, everything_to_itself, deep_topics, never_released, aliases, property_lists, incomplete_packets,
        orders_and_reports, will_changes, a_reader_of_the_node,
    )
}  # fmt: skip
FRAMES: dict[str, Stream] = {"odd_frames": odd_frames, "odd_frames_before_connect": odd_frames}
NEWCOMERS = frozenset(BEFORE) | {"odd_frames_before_connect"}  # who have not said CONNECT
ALL: dict[str, Stream] = {**BEFORE, **AFTER, **FRAMES}
