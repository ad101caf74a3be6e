"""Loops over neighbouring packets of one kind that need nothing special: most QoS 1 and 2 traffic.

Each function starts at a packet it may be able to handle, goes on as long as the next packet is of the same kind,
and returns the position it reached. What it does not handle (an unknown identifier, a full queue, properties,
a recipient of another protocol version) it leaves in place for the general path, which finds the same state as
if it had handled everything itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.broker.message import Message
from tidegate.broker.session import RELEASED

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.index import Route
    from tidegate.broker.shared import SharedGroup

# Two-byte forms of all packet identifiers: a lookup is a third of the price of int.to_bytes, for 3 MB.
PACKET_IDENTIFIERS = tuple(i.to_bytes(2, "big") for i in range(65_536))
RELEASED_UNSTORED = (0, RELEASED, 0)
MAX_SENT, MAX_SHARED = 8_000, 2_000  # copies after which other clients may have their turn
PUBACK = b"\x40\x02"
PUBREC = b"\x50\x02"
PUBREL = b"\x62\x02"
PUBCOMP = b"\x70\x02"


def publishes(conn: Connection, data: bytes, pos: int, size: int) -> tuple[int, int]:
    """QoS 1 and 2 PUBLISH packets, first byte 0x32 or 0x34, whose recipients all take them as they came.

    Returns the position and the number of packets handled. Long because it is a measured hot loop.
    """
    core = conn.core
    session = conn.session
    if (
        core.full
        or core.memory.pressure
        or core.publish_observers
        or session.durable is not None
        or session.late_until
        or (conn.last_batch is not None and not conn.last_batch.is_committed)
    ):
        return pos, 0
    routes = conn.routes
    v5 = conn.v5
    limit = conn.max_packet_in
    first = data[pos]
    qos = first >> 1 & 3
    inbound = session.inbound
    if qos == 2 and inbound is None:
        inbound = session.inbound = set()
    start = pos
    sent = 0
    acks: list[bytes] = []
    tap = core.tap
    run: Route | None = None  # route of the run that ends at `pos`
    is_exact = tap is not None and tap.is_full  # a run has packets of one size only
    run_start = run_acks = step = 0
    while pos + 1 < size and data[pos] == first:
        length = data[pos + 1]
        body = pos + 2
        if length > 127:
            body = pos + 3
            if body > size or not data[pos + 2]:
                break
            length = length & 0x7F | data[pos + 2] << 7
            if length > 16_383:
                break
        end = body + length
        if end > size or length < 5 or end - pos > limit:
            break
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        after = topic_end + 2
        if after >= end and (v5 or after > end):
            break
        if v5 and data[after]:
            break
        route = routes.get(data[body + 2 : topic_end])
        if route is not run or (is_exact and end - pos != step):
            if run is not None and tap is not None:
                tap.run(conn, run, qos, len(acks) - run_acks, pos - run_start)
            run = route
            run_start = pos
            run_acks = len(acks)
            step = end - pos
        if route is None:
            break
        targets = route.exact5[qos] if v5 else route.exact4[qos]
        if not targets:
            break
        pid = data[topic_end:after]
        if pid == b"\0\0":
            break
        if inbound is not None and qos == 2:
            number = pid[0] << 8 | pid[1]
            if number in inbound or len(inbound) >= conn.receive_maximum:
                break
            inbound.add(number)
        head = data[pos:topic_end]
        tail = data[after:end]
        entry = (head, qos, tail)
        message: Message | None = None
        for target in targets:
            inflight = target.inflight
            if (
                target.pending is None
                and target.unsent is None
                and len(inflight) < target.quota
                and (target.queued or target.make_ready())
            ):
                number = target.next_pid
                while number in inflight:
                    number = number + 1 if number < 65_535 else 1
                target.next_pid = number + 1 if number < 65_535 else 1
                inflight[number] = entry
                target.out += (head, PACKET_IDENTIFIERS[number], tail)
                sent += 1
            else:
                if message is None:
                    message = Message(
                        data[body + 2 : topic_end], data[after + v5 : end], qos, publisher=session.client_id
                    )
                target.deliver(message, qos)
        acks.append(pid)
        pos = end
        if core.full or sent > MAX_SENT:
            break
    if acks:
        if run is not None and tap is not None and len(acks) > run_acks:
            tap.run(conn, run, qos, len(acks) - run_acks, pos - run_start)
        prefix = PUBACK if qos == 1 else PUBREC
        session.write(prefix + prefix.join(acks))
        counters = core.counters
        counters.publish_received += len(acks)
        counters.publish_bytes_received += pos - start
        counters.publish_sent += sent
    conn.debt = len(acks) + sent // 4
    return pos, len(acks)


def acknowledgements(conn: Connection, data: bytes, pos: int, size: int) -> int:
    """PUBACK, PUBREC, PUBREL and PUBCOMP in their four-byte form, for identifiers that are expected."""
    session = conn.session
    inflight = session.inflight
    durable = session.durable
    first = data[pos]
    last = size - 4
    start = pos
    if first == 0x40:
        while pos <= last and data[pos] == 0x40 and data[pos + 1] == 2:
            number = data[pos + 2] << 8 | data[pos + 3]
            entry = inflight.get(number)
            if entry is None or entry[1] != 1:
                break
            del inflight[number]
            pos += 4
            if durable is not None and len(entry) == 5:
                durable.store.done(session, entry[0].mid, entry[4])
                if durable.copy is not None:
                    durable.copy.done(entry)
    elif durable is not None:
        return pos  # what follows waits for commits
    elif first == 0x50:
        answers: list[bytes] = []
        while pos <= last and data[pos] == 0x50 and data[pos + 1] == 2:
            number = data[pos + 2] << 8 | data[pos + 3]
            entry = inflight.get(number)
            if entry is None or entry[1] != 2:
                break
            inflight[number] = RELEASED_UNSTORED
            pos += 4
            answers.append(data[pos - 2 : pos])
        if answers:
            session.write(PUBREL + PUBREL.join(answers))
        return pos
    elif first == 0x70:
        while pos <= last and data[pos] == 0x70 and data[pos + 1] == 2:
            number = data[pos + 2] << 8 | data[pos + 3]
            entry = inflight.get(number)
            if entry is None or entry[1] != RELEASED:
                break
            del inflight[number]
            pos += 4
    else:
        return _releases(conn, data, pos, last)
    if session.load is not None and pos > start:
        session.progressed((pos - start) // 4)
    if session.pending is not None or session.unsent is not None or durable is not None:
        session.drain()
    return pos


def _releases(conn: Connection, data: bytes, pos: int, last: int) -> int:
    inbound = conn.session.inbound
    if inbound is None:
        return pos
    answers: list[bytes] = []
    while pos <= last and data[pos] == 0x62 and data[pos + 1] == 2:
        number = data[pos + 2] << 8 | data[pos + 3]
        if number not in inbound:
            break
        inbound.remove(number)
        pos += 4
        answers.append(data[pos - 2 : pos])
    if not inbound:
        conn.session.inbound = None
    if answers:
        conn.session.write(PUBCOMP + PUBCOMP.join(answers))
    return pos


def shared_run(
    conn: Connection, groups: tuple[SharedGroup, ...], data: bytes, pos: int, topic_end: int, end: int
) -> tuple[int, int]:
    """QoS 0 packets of one topic and size, as they came, each to one member of each group.

    Returns the position and the number of packets handled, at least one.
    """
    core = conn.core
    now = core.now()
    publisher = conn.session.client_id
    v5 = conn.v5
    head = data[pos : topic_end + v5]
    topic = data[pos + 2 + (data[pos + 1] > 127) + 2 : topic_end]
    step = end - pos
    last = min(len(data) - step, pos + MAX_SHARED // len(groups) * step)
    start = pos
    count = missed = 0
    while True:
        packet = data[pos : pos + step]
        for group in groups:
            member = group.choose(topic, publisher, now, 0)
            if member is not None:
                session = member.session
                if session.queued:
                    session.out.append(packet)
                else:
                    session.wake(packet, 1)
            else:
                missed += 1
        pos += step
        count += 1
        if pos > last or not data.startswith(head, pos):
            break
    conn.debt = count * len(groups)
    counters = core.counters
    counters.publish_received += count
    counters.publish_bytes_received += pos - start
    counters.publish_sent += count * len(groups) - missed
    for observer in core.publish_observers:
        observer.on_run(conn, data[start:pos], count)
    return pos, count
