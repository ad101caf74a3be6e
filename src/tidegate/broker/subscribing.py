"""SUBSCRIBE and UNSUBSCRIBE: limits, rights, the index, and the retained messages that answer a subscription."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tidegate.broker.hooks import NODE_TOPIC
from tidegate.broker.index import Subscription
from tidegate.broker.publishing import answer
from tidegate.broker.session import subscription_bytes
from tidegate.broker.tree import PAUSE, has_wildcard
from tidegate.mqtt import packets
from tidegate.mqtt.codes import PacketType, ReasonCode
from tidegate.mqtt.decode import read_filters, read_head, read_subscriptions
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.errors import QuotaExceeded
from tidegate.mqtt.packets import Suback, Subscribe, Unsuback
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.topics import parse_shared

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.hooks import SessionObserver
    from tidegate.broker.long_work import Job
    from tidegate.broker.session import Session

PART = 32  # filters, or retained messages, after which others may have their turn, and
PART_BYTES = 65_536  # of the latter
DECODE_COST, ADD_COST = 6, 10  # of a filter, in units of work
RETAINED_COST = 5  # of sending one retained message
NODE_FILTER = NODE_TOPIC.decode()
MAX_FEEDS = 1_000  # subscriptions of one connection whose retained messages are still to be sent


def subscribe(conn: Connection, body: bytes) -> Job:
    """Answer with one reason code a filter, in order, then send retained messages [MQTT5-3.8.4-1]."""
    core = conn.core
    packet_identifier, at, given = read_head(body, conn.version, PacketType.SUBSCRIBE, conn.max_user_properties)
    requests: list[packets.Subscription] = []
    for request in read_subscriptions(body, at, conn.version):
        requests.append(request)
        _check_number(conn, len(requests))
        if len(requests) % PART == 0:
            yield PART * DECODE_COST
    packet = Subscribe(packet_identifier=packet_identifier, subscriptions=requests, properties=given)
    if core.cluster is not None and _is_client(conn) and core.cluster.sends_on(conn, packet):
        return
    identifiers = given.get(Property.SUBSCRIPTION_IDENTIFIER)
    identifier = identifiers[0] if identifiers else 0
    properties: Properties = {}
    codes: list[int] = []
    retained: list[Subscription] = []
    shared: list[Subscription] = []
    for request in requests:
        code, text = _check(conn, request, identifier)
        if code < 0x80 and not _has_room(conn, request, packet):
            code, text = ReasonCode.QUOTA_EXCEEDED, "no node of the cluster has room for it"
        codes.append(code)
        if len(codes) % PART == 0:
            yield PART * ADD_COST
        if code >= 0x80:
            core.counters.subscribe_denied += 1
            if text and conn.problem_information:
                properties[Property.REASON_STRING] = text
            continue
        subscription, is_new = _add(conn, request, code, identifier)
        if subscription.share:
            shared.append(subscription)
        elif request.retain_handling == 0 or (request.retain_handling == 1 and is_new):
            retained.append(subscription)
    reply = Suback(packet_identifier=packet_identifier, reason_codes=codes, properties=properties)
    packet_out = encode_packet(reply, conn.version, max_packet_size=conn.max_packet_out or None)
    answer(conn, packet_out, waits=conn.session.durable is not None and min(codes) < 0x80)
    yield len(codes) % PART * (DECODE_COST + ADD_COST)
    if shared:
        core.help.ask(conn.session, shared)
    if retained and len(core.retained):
        if conn.feeds is None:
            conn.feeds = deque()
        for subscription in retained:
            conn.feeds.append(_send_retained(conn, subscription))
        conn.feed()


def _is_client(conn: Connection) -> bool:
    """Neither another node nor an operator."""
    return not conn.listener.is_link and not conn.listener.is_operator


def _check_number(conn: Connection, count: int) -> None:
    most = conn.core.limits.max_packet_filters
    if count > most and not conn.listener.is_link:
        raise QuotaExceeded(f"a packet has more than {most} filters")


def _check(conn: Connection, request: packets.Subscription, identifier: int) -> tuple[int, str]:
    """The reason code for one filter: granted QoS or why not, and a text for the second case."""
    core = conn.core
    features = core.features
    topic_filter = request.topic_filter
    if topic_filter.count("/") >= core.limits.max_topic_levels:
        return ReasonCode.TOPIC_FILTER_INVALID, "too many topic levels"
    if identifier and not features.subscription_identifiers_available:
        return ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED, ""
    shared = parse_shared(topic_filter)
    if shared is not None and not features.shared_subscription_available:
        return ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, ""
    if not features.wildcard_subscription_available and has_wildcard(topic_filter.encode()):
        return ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, ""
    session = conn.session
    name = topic_filter.encode()
    is_new = name not in session.subscriptions
    if conn.feeds is not None and len(conn.feeds) > MAX_FEEDS:
        return ReasonCode.QUOTA_EXCEEDED, "retained messages of earlier subscriptions are still being sent"
    if is_new and len(session.subscriptions) >= core.limits.max_subscriptions:
        return ReasonCode.QUOTA_EXCEEDED, "too many subscriptions"
    asked = shared[1] if shared else topic_filter
    if core.cluster is not None and not conn.listener.is_link and asked.startswith(NODE_FILTER):
        return ReasonCode.NOT_AUTHORIZED, "only for nodes"
    if conn.authorise is not None and not conn.authorise.may_subscribe(conn, asked):
        return ReasonCode.NOT_AUTHORIZED, ""
    why = core.memory.refusal(session, subscription_bytes(name)) if is_new else ""
    if why:
        return ReasonCode.QUOTA_EXCEEDED, why
    return min(request.qos, features.maximum_qos), ""


def _has_room(conn: Connection, request: packets.Subscription, packet: Subscribe) -> bool:
    cluster = conn.core.cluster
    if cluster is None or not _is_client(conn):
        return True
    return cluster.admits(conn.session, request.topic_filter, packet)


def _add(
    conn: Connection, request: packets.Subscription, qos: int, identifier: int
) -> tuple[Subscription, bool]:
    core = conn.core
    session = conn.session
    name = request.topic_filter.encode()
    shared = parse_shared(request.topic_filter)
    subscription = Subscription(
        session,
        shared[1].encode() if shared else name,
        qos,
        request.no_local,
        request.retain_as_published,
        identifier,
        shared[0] if shared else "",
    )
    is_new = core.index.add(subscription)
    session.subscribe(name, subscription)
    if session.durable is not None:
        session.durable.store.save_subscription(session, name, subscription)
    core.tell(lambda observer: observer.on_subscribed(session, subscription))
    return subscription, is_new


def unsubscribe(conn: Connection, body: bytes) -> Job:
    session = conn.session
    packet_identifier, at, _ = read_head(body, conn.version, PacketType.UNSUBSCRIBE, conn.max_user_properties)
    topic_filters: list[bytes] = []
    for name in read_filters(body, at):
        topic_filters.append(name.encode())
        _check_number(conn, len(topic_filters))
        if len(topic_filters) % PART == 0:
            yield PART * DECODE_COST
    codes: list[int] = []
    for topic_filter in topic_filters:
        codes.append(_remove(conn, topic_filter))
        if len(codes) % PART == 0:
            yield PART * ADD_COST
    reply = Unsuback(packet_identifier=packet_identifier, reason_codes=codes)
    packet_out = encode_packet(reply, conn.version, max_packet_size=conn.max_packet_out or None)
    answer(conn, packet_out, waits=session.durable is not None)
    yield len(codes) % PART * (DECODE_COST + ADD_COST)


def _remove(conn: Connection, topic_filter: bytes) -> ReasonCode:
    session = conn.session
    cluster = conn.core.cluster if conn.listener.is_link else None
    if cluster is not None and cluster.keeps(session, topic_filter):
        return ReasonCode.SUCCESS
    subscription = session.unsubscribe(topic_filter)
    if subscription is None:
        return ReasonCode.NO_SUBSCRIPTION_EXISTED
    conn.core.index.remove(subscription)
    if session.durable is not None:
        session.durable.store.save_subscription(session, topic_filter, None)
    conn.core.tell(partial(_unsubscribed, session, subscription))
    return ReasonCode.SUCCESS


def _unsubscribed(session: Session, subscription: Subscription, observer: SessionObserver) -> None:
    observer.on_unsubscribed(session, subscription)


def _send_retained(conn: Connection, subscription: Subscription) -> Job:
    """Send what is retained for a new subscription."""
    core = conn.core
    session = conn.session
    sent = size = 0
    for message in core.retained.search(subscription.topic_filter):
        if message is None:
            yield PAUSE
            if session.conn is not conn:
                return
            continue
        is_readable = core.index.may_receive is None or core.index.may_receive(session, message.topic)
        if is_readable and core.authors.may_publish(message.author, message.topic):
            # [MQTT5-3.3.1-8]: retain is set, whatever Retain As Published says, as the message is an old one.
            session.deliver(
                message,
                min(message.qos, subscription.qos),
                True,
                (subscription.identifier,) if subscription.identifier else (),
            )
        sent += 1
        size += len(message.payload)
        if sent % PART == 0 or size > PART_BYTES:
            size = 0
            del message  # the next one is looked up after the pause
            yield PART * RETAINED_COST
            if session.conn is not conn:
                return
