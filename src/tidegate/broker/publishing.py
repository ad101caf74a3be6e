"""PUBLISH on the general path: any QoS, flags, properties and mix of recipients.

`on_publish` parses and checks one packet, `distribute` hands the message to its recipients. Rules: a message
reaches its recipients' queues before it is acknowledged; a QoS 2 identifier is recorded when the message is
handed on, so a repeated PUBLISH is answered and not delivered again [MQTT5-4.3.3-10].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.broker.hooks import LINK_TOPIC, NODE_TOPIC, OPERATOR_TOPIC, READY_TOPIC
from tidegate.broker.index import LOAD_TOPIC, MAX_CACHED_TOPIC, Route
from tidegate.broker.message import Message
from tidegate.broker.operating import CONTROL_TOPIC, answer_of, may_operate, on_order
from tidegate.broker.pressure import Pressure
from tidegate.broker.settings import QueueFull
from tidegate.flow.load_report import parse_value
from tidegate.mqtt.codes import PacketType, ReasonCode
from tidegate.mqtt.errors import (
    MalformedPacket,
    MQTTError,
    ProtocolError,
    QuotaExceeded,
    ReceiveMaximumExceeded,
    TopicAliasInvalid,
    TopicNameInvalid,
)
from tidegate.mqtt.properties import Properties, Property, decode_properties, encode_properties
from tidegate.mqtt.topics import validate_topic_name

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.index import Search, Target
    from tidegate.broker.session import Session
    from tidegate.broker.shared import SharedGroup
    from tidegate.broker.waiting import Waitable

DENIED = Route([], ())  # the publisher has no right to this topic
DENIED.fast4 = DENIED.fast5 = None  # so that every such packet is seen and counted


class InternalRoute(Route):
    """Messages that go no further than the broker: load reports, and what nodes of a cluster tell each other."""

    __slots__ = ()
    is_internal = True


REPORT = InternalRoute([], ())
REPORT.fast4 = REPORT.fast5 = None
BETWEEN_NODES = InternalRoute([], ())
BETWEEN_NODES.fast4 = BETWEEN_NODES.fast5 = None
MAX_OWN_ROUTES = 1_024  # cached (client, topic) rights of one connection
BYTES_A_UNIT = 8  # of properties: so many are decoded in about a microsecond
ORDER = Route([], ())  # what an operator orders: see `operating`, and for the cluster its head
ORDER.fast4 = ORDER.fast5 = None


class QoSNotSupported(MQTTError):
    """A PUBLISH above the Maximum QoS that CONNACK announced [MQTT5-3.2.2-11]."""

    reason_code = ReasonCode.QOS_NOT_SUPPORTED


class RetainNotSupported(MQTTError):
    """A retained PUBLISH where CONNACK said that retain is not available [MQTT5-3.2.2-14]."""

    reason_code = ReasonCode.RETAIN_NOT_SUPPORTED


def on_publish(conn: Connection, data: bytes, pos: int, first: int, body: int, end: int) -> bool:
    """Handle the PUBLISH at data[pos:end]; False if it must wait until a full queue has room."""
    core = conn.core
    if end - body < 2:
        raise MalformedPacket("PUBLISH without topic")
    at = topic_end = body + 2 + (data[body] << 8 | data[body + 1])
    if topic_end > end:
        raise MalformedPacket("topic reaches behind the end of PUBLISH")
    topic = data[body + 2 : topic_end]
    qos = first >> 1 & 3
    pid = b""
    if qos:
        if qos == 3:
            raise MalformedPacket("QoS 3 [MQTT5-3.3.1-4]")
        if qos > core.features.maximum_qos:
            raise QoSNotSupported(f"QoS {qos} is not offered")
        at += 2
        if at > end:
            raise MalformedPacket("PUBLISH without packet identifier")
        pid = data[topic_end:at]
        if pid == b"\0\0":
            raise ProtocolError("packet identifier 0 [MQTT5-2.2.1-3]")
    elif first & 8:
        raise MalformedPacket("DUP with QoS 0 [MQTT5-3.3.1-2]")
    properties = b""
    expires = None
    is_raw = True
    payload_at = at
    if conn.v5:
        if at >= end:
            raise MalformedPacket("PUBLISH without property length")
        if data[at]:
            topic, properties, expires, payload_at, is_raw = _properties(conn, data, at, end, topic)
        else:
            payload_at = at + 1
    route = conn.routes.get(topic)
    if route is None:
        route = resolve(conn, topic)
        if route is None:
            return False
    conn.debt += route.cost
    if not is_raw and conn.group_tag:
        assert core.cluster is not None
        route = core.cluster.group_route(conn, conn.group_tag, topic)
        conn.group_tag = 0
    if first & 1 and not core.features.retain_available:
        raise RetainNotSupported("retained messages are not offered")
    session = conn.session
    if qos == 2 and session.inbound is not None and (pid[0] << 8 | pid[1]) in session.inbound:
        answer(conn, b"\x50\x02" + pid)  # a repetition adds nothing, and is never refused
        return True
    if route is ORDER:  # which never waits for room: it may be what makes some
        _take_order(conn, Message(topic, data[payload_at:end], qos), pid, end - pos)
        return True
    store = core.store
    if qos:
        if store is not None and store.is_blocked:
            return _hold_or_refuse(conn, store, qos, pid)
        if core.memory.pressure >= Pressure.HOLD and not conn.listener.is_operator:
            return _hold_or_refuse(conn, core.memory, qos, pid)
        if core.full:
            full = _full_recipient(core, route)
            if full is not None:
                return _hold_or_refuse(conn, full, qos, pid)
    changes = store.changes if store is not None else 0
    counters = core.counters
    counters.publish_received += 1
    counters.publish_bytes_received += end - pos
    if route is DENIED:
        counters.publish_denied += 1
        acknowledge(conn, qos, pid, ReasonCode.NOT_AUTHORIZED if conn.v5 else ReasonCode.SUCCESS)
        return True
    if qos == 2:
        _receive(conn, pid)
    if route.is_internal:
        if route is REPORT:
            on_load_report(session, data[payload_at:end])
        else:
            assert core.cluster is not None
            message = Message(topic, data[payload_at:end], qos, first & 1 == 1, properties, expires)
            core.cluster.on_message(conn, message)
            if conn.read_epoch != core.index.epoch:
                conn.refresh_routes()  # a session came or went, and the next message is for it
        acknowledge(conn, qos, pid, ReasonCode.SUCCESS, waits=store is not None and store.changes != changes)
        return True
    message = Message(
        topic, data[payload_at:end], qos, first & 1 == 1, properties, expires, session.client_id
    )
    if first & 1:
        message.author = conn.author_of(topic)
    elif is_raw:
        _share_wire_form(message, conn.v5, data, pos, topic_end, at, end)
    if session.late_until:
        core.late.add(conn, message)
    else:
        if first & 1:
            core.retained.keep(message)
        distribute(core, message, route, session)
    if qos:
        matched = route.targets or route.shared
        code = ReasonCode.SUCCESS if matched else ReasonCode.NO_MATCHING_SUBSCRIBERS
        acknowledge(conn, qos, pid, code, waits=store is not None and store.changes != changes)
    if core.tap is not None:
        core.tap.run(conn, route, qos, 1, end - pos)
    for observer in core.publish_observers:
        observer.on_message(conn, message)
    return True


def _take_order(conn: Connection, order: Message, pid: bytes, size: int) -> None:
    core = conn.core
    core.counters.publish_received += 1
    core.counters.publish_bytes_received += size
    code, why = ReasonCode.SUCCESS, ""
    if order.topic.startswith(CONTROL_TOPIC):
        code, why = on_order(conn, order.topic, order.payload)
    else:
        assert core.cluster is not None
        core.cluster.on_message(conn, order)
    if order.qos == 2 and not code:
        _receive(conn, pid)
    if order.qos:
        answer(conn, answer_of(conn, order.qos, pid, code, why))


def _receive(conn: Connection, pid: bytes) -> None:
    """From now on a PUBLISH of QoS 2 with this identifier is a repetition [MQTT5-4.3.3-10]."""
    session = conn.session
    if conn.v5 and len(session.inbound or ()) >= conn.receive_maximum:
        raise ReceiveMaximumExceeded("more QoS 2 messages than Receive Maximum")  # [MQTT5-3.3.4-7]
    number = pid[0] << 8 | pid[1]
    if session.inbound is None:
        session.inbound = set()
    session.inbound.add(number)
    if session.durable is not None:
        session.durable.store.received(session, number, True)


def _share_wire_form(
    message: Message, v5: bool, data: bytes, pos: int, topic_end: int, at: int, end: int
) -> None:
    """Recipients of the publisher's version get its bytes, without encoding them anew."""
    if message.qos:
        if v5:
            message.head5, message.tail5 = data[pos + 1 : topic_end], data[at:end]
        else:
            message.head4 = data[pos + 1 : topic_end]
    elif v5:
        message.q0v5 = data[pos:end]
    else:
        message.q0v4 = data[pos:end]


def _properties(
    conn: Connection, data: bytes, at: int, end: int, topic: bytes
) -> tuple[bytes, bytes, float | None, int, bool]:
    """Topic (alias resolved), properties to forward, expiry, start of the payload, and whether the
    publisher's bytes may be forwarded as they are."""
    core = conn.core
    props, after = decode_properties(data[:end], at, PacketType.PUBLISH, conn.max_user_properties)
    conn.debt += (after - at) // BYTES_A_UNIT
    if Property.SUBSCRIPTION_IDENTIFIER in props:
        if not conn.listener.is_link:
            raise ProtocolError("a client may not send a Subscription Identifier [MQTT5-3.3.4-6]")
        conn.group_tag = props.pop(Property.SUBSCRIPTION_IDENTIFIER)[0]
    alias = props.pop(Property.TOPIC_ALIAS, None)
    expiry = props.pop(Property.MESSAGE_EXPIRY_INTERVAL, None)
    if alias is not None:
        topic = _resolve_alias(conn, alias, topic)
    if alias is None and expiry is None and not conn.group_tag:
        length = 1
        while data[at + length - 1] > 127:
            length += 1
        if length > 1 and not data[at + length - 1]:
            raise MalformedPacket("property length with more bytes than needed [MQTT5-1.5.5-1]")
        return topic, data[at + length : after], None, after, True
    expires = None if expiry is None else core.now() + expiry
    return topic, bare_properties(props), expires, after, False


def bare_properties(props: Properties) -> bytes:
    """A property list without its length prefix."""
    encoded = encode_properties(props)
    size = len(encoded) - 1
    prefix = 1
    while size >= 1 << 7 * prefix:
        prefix += 1
        size = len(encoded) - prefix
    return encoded[prefix:]


def _resolve_alias(conn: Connection, alias: int, topic: bytes) -> bytes:
    if alias > conn.core.limits.max_topic_alias:  # zero was refused by the decoder
        raise TopicAliasInvalid(f"topic alias {alias} is over the maximum [MQTT5-3.3.2-9]")
    aliases = conn.aliases_in
    if aliases is None:
        aliases = conn.aliases_in = {}
    if topic:
        _check_name(conn.core, topic)
        conn.alias_bytes_in += len(topic) - len(aliases.get(alias, b""))
        if conn.alias_bytes_in > conn.core.limits.max_alias_bytes:
            raise QuotaExceeded("the topics of this connection's aliases are too long together")
        aliases[alias] = topic
        return topic
    known = aliases.get(alias)
    if known is None:
        raise ProtocolError(f"topic alias {alias} was never set")
    return known


def note_alias(conn: Connection, packet: bytes, body: int) -> None:
    """A PUBLISH is discarded unseen; a topic alias that it defines holds all the same."""
    at = body + 2 + (packet[body] << 8 | packet[body + 1])
    topic = packet[body + 2 : at]
    at += 2 if packet[0] & 6 else 0
    if not topic or at >= len(packet) or not packet[at]:
        return
    props, _ = decode_properties(packet, at, PacketType.PUBLISH, conn.max_user_properties)
    alias = props.get(Property.TOPIC_ALIAS)
    if alias is not None:
        _resolve_alias(conn, alias, topic)


def _check_name(core: Core, topic: bytes) -> None:
    if b"\0" in topic:
        raise MalformedPacket("U+0000 in a topic [MQTT5-1.5.4-2]")
    try:
        validate_topic_name(topic.decode(), max_levels=core.limits.max_topic_levels)
    except UnicodeDecodeError:
        raise MalformedPacket("topic is not UTF-8 [MQTT5-1.5.4-1]") from None


def resolve(conn: Connection, topic: bytes) -> Route | None:
    """Route of a topic this connection has no ready answer for: valid, allowed, and who gets it.

    None if that takes long: the connection is released when it is found.
    """
    core = conn.core
    if not topic and conn.v5:
        raise ProtocolError("empty topic without topic alias")
    _check_name(core, topic)
    if topic == LOAD_TOPIC:
        return REPORT
    if core.cluster is not None:
        if topic.startswith(LINK_TOPIC):
            return BETWEEN_NODES if conn.listener.is_link else DENIED
        if topic == READY_TOPIC and not conn.listener.is_link:
            return BETWEEN_NODES
        if topic.startswith(OPERATOR_TOPIC):
            return _for_operators(conn, topic)
        if conn.listener.is_link:
            found = _find(conn, topic)
            if found is None:
                return None
            wanted = core.cluster.route(conn, found.finish())
            return _remember(conn, topic, wanted) if found.is_current else wanted
        if topic.startswith(NODE_TOPIC):
            return DENIED
    if topic.startswith((b"$SYS/", b"$share/")) or topic == b"$SYS":
        if topic.startswith(b"$share/"):
            raise TopicNameInvalid("$share/ is for subscriptions")
        return DENIED
    if topic.startswith(CONTROL_TOPIC):
        return ORDER if may_operate(conn, topic) else DENIED
    authorise = conn.authorise
    if authorise is not None and not authorise.may_publish(conn, topic.decode()):
        return _remember(conn, topic, DENIED)
    found = _find(conn, topic)
    if found is None:
        return None
    route = found.finish()
    return route if authorise is None or not found.is_current else _remember(conn, topic, route)


def _find(conn: Connection, topic: bytes) -> Search | None:
    """Who gets the topic; None if that takes long: the connection is released when it is found."""
    core = conn.core
    found = conn.found
    conn.found = None
    if found is None or found.topic != topic:
        found = core.index.search(topic)
        conn.debt += found.cost
    else:
        conn.session.work += found.cost
    if found.route is not None:
        return found
    conn.found = found
    conn.wait_for(found)
    core.find(found)
    return None


def _for_operators(conn: Connection, topic: bytes) -> Route:
    """Operators may operate the cluster, at a head."""
    cluster = conn.core.cluster
    if cluster is None or not cluster.takes_orders:
        return DENIED
    return ORDER if may_operate(conn, topic) else DENIED


def _remember(conn: Connection, topic: bytes, route: Route) -> Route:
    """In the connection's own routes, which differ from those of others."""
    if len(conn.routes) >= MAX_OWN_ROUTES:
        conn.routes.clear()
    if len(topic) <= MAX_CACHED_TOPIC:
        conn.routes[topic] = route
    return route


def _full_recipient(core: Core, route: Route) -> Session | SharedGroup | None:
    """A session, or a group of them, that would have to queue a QoS 1 or 2 message and has no room."""
    for target in route.targets:
        session = target.session
        if session.is_full and target.qos and not core.drops_for(session):
            return session
    for group in route.shared:
        sessions = [member.session for member in group.offered]
        if all(s.is_full and not core.drops_for(s) for s in sessions):
            return core.index.groups.get((group.name, group.topic_filter), group)
    return None


def _hold_or_refuse(conn: Connection, full: Waitable, qos: int, pid: bytes) -> bool:
    """Answer 0x97 and go on, or wait for `full`, a session, the disk or the memory, to have room."""
    core = conn.core
    if core.features.queue_full is QueueFull.REFUSE and conn.v5 and not conn.listener.is_link:
        core.counters.publish_refused += 1
        acknowledge(conn, qos, pid, ReasonCode.QUOTA_EXCEEDED)
        return True
    conn.wait_for(full)
    core.counters.publish_held += 1
    return False


def acknowledge(conn: Connection, qos: int, pid: bytes, code: ReasonCode, waits: bool = False) -> None:
    if not qos:
        return
    first = b"\x40" if qos == 1 else b"\x50"
    if code and conn.v5:
        answer(conn, first + b"\x03" + pid + bytes((code,)), waits)
    else:
        answer(conn, first + b"\x02" + pid, waits)


def answer(conn: Connection, packet: bytes, waits: bool = False) -> None:
    """Send an acknowledgement; if it `waits`, after the commit of what it promises.

    Those behind one that waits wait with it: acknowledgements keep the order of what they acknowledge
    [MQTT5-4.6.0-2].
    """
    store = conn.core.store
    if store is None or store.is_relaxed:
        conn.session.write(packet)
    elif waits or (conn.last_batch is not None and not conn.last_batch.is_committed):
        store.acknowledge(conn, packet)
    else:
        conn.session.write(packet)


def on_load_report(session: Session, value: str | bytes) -> None:
    """The client told its load; what makes no sense is ignored."""
    report = parse_value(value)
    if report is not None:
        session.on_report(report)


def on_pubrel(conn: Connection, packet_identifier: int) -> None:
    """The sender of a QoS 2 message gives up its identifier [MQTT5-4.3.3-11]."""
    session = conn.session
    pid = packet_identifier.to_bytes(2, "big")
    if session.inbound and packet_identifier in session.inbound:
        session.inbound.discard(packet_identifier)
        if not session.inbound:
            session.inbound = None
        if session.durable is not None:
            # Were PUBCOMP sent first and the note lost, the client's next message of this number would be, too.
            session.durable.store.received(session, packet_identifier, False)
            answer(conn, b"\x70\x02" + pid, waits=True)
            return
    elif conn.v5:
        answer(conn, b"\x70\x03" + pid + b"\x92")
        return
    answer(conn, b"\x70\x02" + pid)


def distribute(core: Core, message: Message, route: Route, sender: Session | None) -> None:
    """Deliver to every recipient of the route."""
    if message.qos == 0 and message.expires is None and not message.retain:
        for version, sessions in ((4, route.plain4), (5, route.plain5)):
            if sessions:
                packet = message.plain(version)
                for session in sessions:
                    if session.queued:
                        session.out.append(packet)
                    else:
                        session.wake(packet, 1)
                core.counters.publish_sent += len(sessions)
        for target in route.special:
            _deliver_target(message, target, sender)
    else:
        qos = message.qos
        retain = message.retain
        for target in route.targets:
            if target.is_plain:
                target.session.deliver(
                    message,
                    qos if qos < target.qos else target.qos,  # noqa: FURB136 - half the price of min()
                    retain and target.retain_as_published,
                )
            else:
                _deliver_target(message, target, sender)
    for group in route.shared:
        chosen = group.choose(message.topic, message.publisher, core.now(), message.qos)
        if chosen is not None:
            chosen.session.deliver(
                message,
                min(message.qos, chosen.qos),
                message.retain and chosen.retain_as_published,
                chosen.tag,
            )
    if message.retain:
        message.forget_forms()


def _deliver_target(message: Message, target: Target, sender: Session | None) -> None:
    session = target.session
    if session is sender and any(s.no_local for s in target.subscriptions):
        # [MQTT5-3.8.3-3]: subscriptions with No Local do not see the client's own messages.
        left = [s for s in target.subscriptions if not s.no_local]
        if not left:
            return
        session.deliver(
            message,
            min(message.qos, max(s.qos for s in left)),
            message.retain and any(s.retain_as_published for s in left),
            tuple(s.identifier for s in left if s.identifier),
        )
        return
    session.deliver(
        message,
        min(message.qos, target.qos),
        message.retain and target.retain_as_published,
        target.identifiers,
    )


__all__ = [
    "DENIED",
    "acknowledge",
    "answer",
    "bare_properties",
    "distribute",
    "note_alias",
    "on_load_report",
    "on_publish",
    "on_pubrel",
    "resolve",
]
