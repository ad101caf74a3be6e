"""Shared subscriptions on real sockets: reports by every carrier, acknowledgements, members that leave or stall."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker.flow_settings import FlowSettings, SharedRule
from tidegate.flow.load_report import LOAD_PROPERTY, NEGOTIATION, LoadReport
from tidegate.mqtt import Connack, Pingreq, Pingresp, Puback, Publish, Pubrec
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

FILTER = "$share/g/jobs/+"
REPORT = LoadReport(queue_length=3, processing_time=0.0247, count=5, processed=5)


def member(dial: Dial, broker: BrokerThread, name: str, qos: int = 1, **options: object) -> RawClient:
    client = dial(broker)
    client.connect(name, **options)  # type: ignore[arg-type]
    client.subscribe(FILTER, qos=qos)
    return client


def load_of(broker: BrokerThread, name: str) -> tuple[int, float, int]:
    def ask() -> tuple[int, float, int]:
        load = broker.broker.core.sessions[name].load
        assert load is not None
        return load.queue_length, load.mean_time, load.awaiting

    return broker.call(ask)


def ping(client: RawClient) -> None:
    """What was sent to the client before this is in its inbox after it."""
    client.send(Pingreq())
    client.take(Pingresp)


def payloads(client: RawClient, count: int) -> list[bytes]:
    return [client.take(Publish).payload for _ in range(count)]


def test_an_agreed_extended_pingreq_is_a_report_and_is_answered(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker()
    client = dial(broker)
    connack = client.connect("m", properties={Property.USER_PROPERTY: [NEGOTIATION]})
    assert isinstance(connack, Connack)
    assert NEGOTIATION in connack.properties[Property.USER_PROPERTY]
    client.subscribe(FILTER, qos=0)
    body = REPORT.encode_pingreq()
    client.send_bytes(b"\xc0" + bytes((len(body),)) + body)
    client.take(Pingresp)
    assert load_of(broker, "m")[:2] == (3, pytest.approx(0.0247))


@pytest.mark.parametrize("body", [b"\0{", b"\0{}", b"\xff\xff\xff\xff", b"\0" + b'{"msgsInQueue":-1}'])
def test_a_malformed_report_is_ignored_and_answered(
    start_broker: StartBroker, dial: Dial, body: bytes
) -> None:
    broker = start_broker()
    client = dial(broker)
    client.connect("m", properties={Property.USER_PROPERTY: [NEGOTIATION]})
    client.subscribe(FILTER, qos=0)
    client.send_bytes(b"\xc0" + bytes((len(body),)) + body)
    client.take(Pingresp)
    assert load_of(broker, "m")[0] == 0


def test_without_agreement_a_body_of_pingreq_is_malformed(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker()
    client = dial(broker)
    client.connect("m")
    body = REPORT.encode_pingreq()
    client.send_bytes(b"\xc0" + bytes((len(body),)) + body)
    ended = client.expect_closed()
    assert ended is not None and ended.reason_code == 0x81


def test_a_report_comes_by_puback_and_by_publish_as_well(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker()
    client = member(dial, broker, "m")
    publisher = dial(broker)
    publisher.connect("p")
    watcher = dial(broker)
    watcher.connect("w")
    watcher.subscribe("$tide/#", qos=1)
    publisher.publish("jobs/1", b"x", qos=1)
    message = client.take(Publish)
    assert message.packet_identifier is not None
    client.send(
        Puback(
            packet_identifier=message.packet_identifier,
            properties={Property.USER_PROPERTY: [(LOAD_PROPERTY, REPORT.encode_value())]},
        )
    )
    until(lambda: load_of(broker, "m")[0] == 3)
    other = LoadReport(queue_length=9, processing_time=0.001)
    client.publish("$tide/load", other.encode_value().encode(), qos=1)
    assert load_of(broker, "m")[0] == 9
    client.publish("$tide/load", b"nonsense", qos=2)
    assert load_of(broker, "m")[0] == 9
    ping(watcher)
    assert not watcher.inbox  # a report is for the node alone


def test_a_member_that_acknowledges_late_gets_less(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker()
    quick, slow = member(dial, broker, "quick"), member(dial, broker, "slow")
    publisher = dial(broker)
    publisher.connect("p")
    got: Counter[str] = Counter()
    for number in range(60):
        publisher.publish("jobs/1", str(number).encode(), qos=1)
        for name, client in (("quick", quick), ("slow", slow)):
            ping(client)
            while client.inbox:
                message = client.inbox.popleft()
                assert isinstance(message, Publish)
                got[name] += 1
                if name == "quick":  # the slow one acknowledges nothing at all
                    client.acknowledge(message)
    assert got["quick"] + got["slow"] == 60
    assert got["slow"] <= 3


@pytest.mark.parametrize("expiry", [0, 3600])
def test_what_a_member_that_leaves_has_not_acknowledged_goes_to_another_at_once(
    start_broker: StartBroker, dial: Dial, expiry: int, until: Until
) -> None:
    broker = start_broker(flow=FlowSettings(shared=(SharedRule(policy="round_robin"),)))
    properties = {Property.SESSION_EXPIRY_INTERVAL: expiry}
    first = member(dial, broker, "first", properties=properties)
    second = member(dial, broker, "second", properties=properties)
    publisher = dial(broker)
    publisher.connect("p")
    for number in range(10):
        publisher.publish("jobs/1", str(number).encode(), qos=1)
    mine = set(payloads(first, 5))
    theirs = [second.take(Publish) for _ in range(5)]
    first.close()
    more = [second.take(Publish) for _ in range(5)]
    assert [m.payload for m in more] == sorted(mine)
    for message in (*theirs, *more):
        second.acknowledge(message)
    until(lambda: load_of(broker, "second")[2] == 0)
    assert broker.call(lambda: broker.broker.core.counters.shared_moved) == 5
    if expiry:
        again = dial(broker)
        again.connect("first", clean_start=False, properties=properties)
        ping(again)
        assert not again.inbox


def test_qos_2_in_flight_stays_with_its_member(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(flow=FlowSettings(shared=(SharedRule(policy="round_robin"),)))
    properties = {Property.SESSION_EXPIRY_INTERVAL: 3600}
    first = member(dial, broker, "first", qos=2, properties=properties)
    second = member(dial, broker, "second", qos=2, properties=properties)
    publisher = dial(broker)
    publisher.connect("p")
    publisher.publish("jobs/1", b"one", qos=2)
    publisher.publish("jobs/1", b"two", qos=2)
    assert first.take(Publish).payload == b"one"
    first.close()
    assert second.take(Publish).payload == b"two"
    ping(second)
    assert not second.inbox
    again = dial(broker)
    again.connect("first", clean_start=False, properties=properties)
    message = again.take(Publish)
    assert (message.payload, message.dup) == (b"one", True)
    assert message.packet_identifier is not None
    again.send(Pubrec(packet_identifier=message.packet_identifier))


def test_a_member_that_stalls_gives_up_its_messages_and_comes_back_with_its_next_acknowledgement(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(shared_stall=0.3, flow=FlowSettings(shared=(SharedRule(policy="round_robin"),)))
    stuck, well = member(dial, broker, "stuck"), member(dial, broker, "well")
    publisher = dial(broker)
    publisher.connect("p")
    for number in range(6):
        publisher.publish("jobs/1", str(number).encode(), qos=1)
    held = [stuck.take(Publish) for _ in range(3)]
    seen = []
    for _ in range(6):
        message = well.take(Publish)
        seen.append(message.payload)
        well.acknowledge(message)
    assert sorted(seen) == [str(number).encode() for number in range(6)]
    publisher.publish("jobs/1", b"later", qos=1)
    message = well.take(Publish)
    well.acknowledge(message)
    assert message.payload == b"later"
    for late in held:
        stuck.acknowledge(late)
    until(lambda: not broker.call(lambda: broker.broker.core.sessions["stuck"].is_stalled))
    assert not broker.call(lambda: broker.broker.core.sessions["stuck"].inflight)
    for number in range(4):
        publisher.publish("jobs/1", f"again {number}".encode(), qos=1)
    assert len(payloads(stuck, 2)) == len(payloads(well, 2)) == 2


def test_a_policy_can_be_set_for_one_group_and_changed_while_it_serves(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(flow=FlowSettings(shared=(SharedRule(group="g", policy="sticky"),)))
    clients = [member(dial, broker, name, qos=0) for name in "abc"]
    publisher = dial(broker)
    publisher.connect("p")

    def spread() -> list[int]:
        for number in range(9):
            publisher.publish("jobs/1", str(number).encode())
        ping(publisher)
        counts = []
        for client in clients:
            ping(client)
            counts.append(len(client.inbox))
            client.inbox.clear()
        return counts

    assert sorted(spread()) == [0, 0, 9]
    rules = FlowSettings(shared=(SharedRule(group="g", policy="round_robin"),))
    core = broker.broker.core
    broker.call(lambda: broker.broker.apply(core.limits, core.features, rules))
    assert spread() == [3, 3, 3]


def test_the_groups_are_shown(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(sys_interval=1.0)
    member(dial, broker, "m1")
    member(dial, broker, "m2")
    watcher = dial(broker)
    watcher.connect("w")
    watcher.subscribe("$SYS/tide/groups", qos=0)
    document = json.loads(watcher.take(Publish, timeout=5).payload)
    (row,) = document["rows"]
    assert (row["group"], row["filter"], row["policy"]) == ("g", "jobs/+", "earliest_finish")
    assert {m["client"] for m in row["members"]} == {"m1", "m2"}
