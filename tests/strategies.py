"""Hypothesis strategies for MQTT: every packet kind, for every protocol level, as both ends may send them.

`packets(version)` gives packets that survive encode and decode unchanged: what a version cannot carry keeps
its default. `streams()` gives what a client may send, CONNECT first.
"""

from typing import Any

from hypothesis import strategies as st

from tidegate.mqtt.codes import LEGAL, REASON_CODES, REASON_OF_RETURN_CODE, PacketType
from tidegate.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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
from tidegate.mqtt.properties import TABLE, WILL, Kind, Properties, Property

VERSIONS = (3, 4, 5)

versions = st.sampled_from(VERSIONS)
packet_identifiers = st.integers(1, 65_535)
qos_levels = st.integers(0, 2)
payloads = st.binary(max_size=200)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)

# Few letters and empty levels, so that filters and topics often have something to do with each other.
_names = st.sampled_from(["", "a", "b", "ab", "é", "$", "$SYS", " "])
topics = st.lists(_names, min_size=1, max_size=5).map("/".join).filter(bool) | st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@st.composite
def plain_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(_names | st.just("+"), min_size=0, max_size=5))
    if draw(st.booleans()) or not any(levels):
        levels.append("#")
    return "/".join(levels)


@st.composite
def shared_filters(draw: st.DrawFn) -> str:
    name = draw(st.text("abé ", min_size=1, max_size=5))
    return f"$share/{name}/{draw(plain_filters())}"


topic_filters = plain_filters() | shared_filters()

_TRUTH = st.integers(0, 1)
_BY_KIND: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BYTE: _TRUTH,
    Kind.TWO_BYTE_INTEGER: st.integers(1, 65_535),
    Kind.FOUR_BYTE_INTEGER: st.integers(1, 2**32 - 1),
    Kind.UTF8_STRING: texts,
    Kind.BINARY_DATA: st.binary(max_size=20),
    Kind.UTF8_STRING_PAIR: st.lists(st.tuples(texts, texts), min_size=1, max_size=3),
}


@st.composite
def properties(draw: st.DrawFn, packet: int) -> Properties:
    """Any legal property list of a packet type (or `WILL`), in any order."""
    allowed = sorted(p for p, (_, where) in TABLE.items() if packet in where)
    chosen = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=6)) if allowed else []
    if Property.AUTHENTICATION_DATA in chosen and Property.AUTHENTICATION_METHOD not in chosen:
        chosen.append(Property.AUTHENTICATION_METHOD)
    values: Properties = {}
    for prop in chosen:
        if prop is Property.SUBSCRIPTION_IDENTIFIER:
            most = 3 if packet == PacketType.PUBLISH else 1
            values[prop] = draw(st.lists(st.integers(1, 268_435_455), min_size=1, max_size=most))
        elif prop is Property.RESPONSE_TOPIC:
            values[prop] = draw(topics)
        else:
            values[prop] = draw(_BY_KIND[TABLE[prop][0]])
    return values


def _properties(version: int, packet: int) -> st.SearchStrategy[Properties]:
    return properties(packet) if version == 5 else st.builds(dict)


def _reason_codes(packet: PacketType) -> st.SearchStrategy[int]:
    return st.sampled_from([REASON_CODES[code] for code in sorted(LEGAL[packet])])


@st.composite
def wills(draw: st.DrawFn, version: int) -> Will:
    return Will(
        topic=draw(topics),
        payload=draw(payloads),
        qos=draw(qos_levels),
        retain=draw(st.booleans()),
        properties=draw(_properties(version, WILL)),
    )


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    username = draw(st.none() | texts)
    has_password = version == 5 or username is not None
    return Connect(
        client_id=draw(texts),
        clean_start=draw(st.booleans()),
        keep_alive=draw(st.integers(0, 65_535)),
        username=username,
        password=draw(st.none() | st.binary(max_size=20)) if has_password else None,
        will=draw(st.none() | wills(version)),
        properties=draw(_properties(version, PacketType.CONNECT)),
        protocol_level=version,
        protocol_name="MQIsdp" if version == 3 else "MQTT",
    )


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Connack:
    if version == 5:
        reason_code = draw(_reason_codes(PacketType.CONNACK))
    else:
        reason_code = draw(st.sampled_from(sorted(REASON_OF_RETURN_CODE.values())))
    return Connack(
        session_present=draw(st.booleans()) if reason_code == 0 else False,
        reason_code=reason_code,
        properties=draw(_properties(version, PacketType.CONNACK)),
    )


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Publish:
    qos = draw(qos_levels)
    props = draw(_properties(version, PacketType.PUBLISH))
    may_be_empty = Property.TOPIC_ALIAS in props
    return Publish(
        topic=draw(topics | st.just("")) if may_be_empty else draw(topics),
        payload=draw(payloads),
        qos=qos,
        retain=draw(st.booleans()),
        dup=draw(st.booleans()) if qos else False,
        packet_identifier=draw(packet_identifiers) if qos else None,
        properties=props,
    )


@st.composite
def acknowledgements(draw: st.DrawFn, version: int) -> Puback | Pubrec | Pubrel | Pubcomp:
    kinds: list[type[Puback | Pubrec | Pubrel | Pubcomp]] = [Puback, Pubrec, Pubrel, Pubcomp]
    make = draw(st.sampled_from(kinds))
    kind = PacketType[make.__name__.upper()]
    return make(
        packet_identifier=draw(packet_identifiers),
        reason_code=draw(_reason_codes(kind)) if version == 5 else 0,
        properties=draw(_properties(version, kind)),
    )


@st.composite
def subscriptions(draw: st.DrawFn, version: int) -> Subscription:
    topic_filter = draw(topic_filters)
    if version < 5:
        return Subscription(topic_filter=topic_filter, qos=draw(qos_levels))
    return Subscription(
        topic_filter=topic_filter,
        qos=draw(qos_levels),
        no_local=False if topic_filter.startswith("$share/") else draw(st.booleans()),
        retain_as_published=draw(st.booleans()),
        retain_handling=draw(st.integers(0, 2)),
    )


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    return Subscribe(
        packet_identifier=draw(packet_identifiers),
        subscriptions=draw(st.lists(subscriptions(version), min_size=1, max_size=4)),
        properties=draw(_properties(version, PacketType.SUBSCRIBE)),
    )


@st.composite
def subacks(draw: st.DrawFn, version: int) -> Suback:
    code = _reason_codes(PacketType.SUBACK) if version == 5 else st.sampled_from([0, 1, 2, 0x80])
    return Suback(
        packet_identifier=draw(packet_identifiers),
        reason_codes=draw(st.lists(code, min_size=1, max_size=4)),
        properties=draw(_properties(version, PacketType.SUBACK)),
    )


@st.composite
def unsubscribes(draw: st.DrawFn, version: int) -> Unsubscribe:
    return Unsubscribe(
        packet_identifier=draw(packet_identifiers),
        topic_filters=draw(st.lists(topic_filters, min_size=1, max_size=4)),
        properties=draw(_properties(version, PacketType.UNSUBSCRIBE)),
    )


@st.composite
def unsubacks(draw: st.DrawFn, version: int) -> Unsuback:
    codes = st.lists(_reason_codes(PacketType.UNSUBACK), min_size=1, max_size=4)
    return Unsuback(
        packet_identifier=draw(packet_identifiers),
        reason_codes=draw(codes) if version == 5 else [],
        properties=draw(_properties(version, PacketType.UNSUBACK)),
    )


@st.composite
def disconnects(draw: st.DrawFn, version: int) -> Disconnect:
    return Disconnect(
        reason_code=draw(_reason_codes(PacketType.DISCONNECT)) if version == 5 else 0,
        properties=draw(_properties(version, PacketType.DISCONNECT)),
    )


@st.composite
def auths(draw: st.DrawFn) -> Auth:
    props = draw(properties(PacketType.AUTH))
    reason_code = draw(_reason_codes(PacketType.AUTH))
    if reason_code:
        props.setdefault(Property.AUTHENTICATION_METHOD, "plain")
    return Auth(reason_code=reason_code, properties=props)


def packets(version: int, *, but_connect: bool = False) -> st.SearchStrategy[Packet]:
    """Any packet of either direction, for protocol level 3, 4 or 5."""
    kinds: list[st.SearchStrategy[Any]] = [
        connacks(version),
        publishes(version),
        acknowledgements(version),
        subscribes(version),
        subacks(version),
        unsubscribes(version),
        unsubacks(version),
        st.builds(Pingreq),
        st.builds(Pingresp),
        disconnects(version),
    ]
    if version == 5:
        kinds.append(auths())
    if not but_connect:
        kinds.append(connects(version))
    return st.one_of(kinds)


versioned_packets = versions.flatmap(lambda version: st.tuples(st.just(version), packets(version)))
"""Pairs of a protocol level and a packet of it."""


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, list[Packet]]:
    """A protocol level and what a connection may carry from its first packet on."""
    version = draw(versions)
    rest = draw(st.lists(packets(version, but_connect=True), max_size=5))
    return version, [draw(connects(version)), *rest]


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in pieces, some of them empty."""
    at = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]
