"""What a member of a group leaves behind: nothing lost, nothing doubled, nobody starved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.broker.flow_settings import FlowSettings, SharedRule
from tidegate.broker.store import StoreSettings
from tidegate.flow.load_report import LoadReport
from tidegate.mqtt import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Will
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

FILTER = "$share/g/jobs/+"
STAYS = {Property.SESSION_EXPIRY_INTERVAL: 3600}
IN_TURN = FlowSettings(shared=(SharedRule(policy="round_robin"),))


def member(
    dial: Dial, broker: BrokerThread, name: str, *, clean: bool = True, **properties: object
) -> RawClient:
    client = dial(broker)
    client.connect(name, clean_start=clean, properties={**STAYS, **properties})  # type: ignore[dict-item]
    client.subscribe(FILTER, qos=1)
    return client


@pytest.fixture
def publish(dial: Dial) -> Callable[..., list[bytes]]:
    def send(broker: BrokerThread, count: int, first: int = 0, properties: object = None) -> list[bytes]:
        client = dial(broker)
        client.connect("")
        for number in range(first, first + count):
            client.publish("jobs/1", str(number).encode(), qos=1, properties=properties)  # type: ignore[arg-type]
        return [str(number).encode() for number in range(first, first + count)]

    return send


def drain(client: RawClient) -> list[bytes]:
    """All that is on its way, acknowledged."""
    found: list[bytes] = []
    while True:
        client.send(Pingreq())
        client.take(Pingresp)
        if not client.inbox:
            return found
        while client.inbox:
            message = client.inbox.popleft()
            assert isinstance(message, Publish)
            found.append(message.payload)
            client.acknowledge(message)


def test_if_others_have_no_room_the_rest_stays_with_its_member(
    start_broker: StartBroker, dial: Dial, publish, until: Until
) -> None:
    broker = start_broker(max_queued_messages=100, max_inflight=10)
    first = member(dial, broker, "first")
    sent = publish(broker, 90)
    first.take(Publish)
    second = member(dial, broker, "second")
    more = publish(broker, 60, 90)
    first.close()
    until(lambda: broker.call(lambda: broker.broker.core.sessions["first"].conn) is None)
    assert broker.call(lambda: broker.broker.core.sessions["first"].expiry_alarm is not None)
    found = drain(second)
    back = dial(broker)
    back.connect("first", clean_start=False, properties=STAYS)
    found += drain(back) + drain(second)
    assert sorted(set(found)) == sorted(sent + more)


def test_a_member_that_joins_takes_what_those_have_who_are_away(
    start_broker: StartBroker, dial: Dial, publish
) -> None:
    broker = start_broker()
    first = member(dial, broker, "first")
    first.disconnect()
    sent = publish(broker, 500)
    assert drain(member(dial, broker, "second")) == sent


def test_a_session_that_ends_leaves_its_messages_to_the_group(
    start_broker: StartBroker, dial: Dial, publish, until: Until
) -> None:
    broker = start_broker(shared_wait=60.0)
    first, second = member(dial, broker, "first"), member(dial, broker, "second")
    sent = publish(broker, 20)
    first.close()
    until(lambda: broker.call(lambda: broker.broker.core.sessions["first"].conn) is None)
    again = dial(broker)
    again.connect("first", clean_start=True)
    assert sorted(drain(second), key=int) == sent


def test_a_member_that_comes_back_gets_its_part_again(start_broker: StartBroker, dial: Dial, publish) -> None:
    broker = start_broker()
    first, second = member(dial, broker, "first"), member(dial, broker, "second")
    publish(broker, 10)
    first.close()
    drain(second)
    first = member(dial, broker, "first", clean=False)
    counts = [0, 0]
    for number in range(60):
        publish(broker, 1, number)
        counts[0] += len(drain(first))
        counts[1] += len(drain(second))
    assert sum(counts) == 60
    assert min(counts) > 10


def test_what_has_expired_is_not_handed_on(
    start_broker: StartBroker, dial: Dial, publish, until: Until
) -> None:
    broker = start_broker(flow=IN_TURN)
    first = member(dial, broker, "first")
    publish(broker, 3, properties={Property.MESSAGE_EXPIRY_INTERVAL: 1})
    first.close()
    until(lambda: broker.call(lambda: broker.broker.core.sessions["first"].conn) is None)
    core = broker.broker.core
    until(lambda: broker.call(lambda: core.now() > core.sessions["first"].inflight[1][0].expires + 0.1))  # type: ignore[union-attr]
    second = member(dial, broker, "second")
    assert drain(second) == []
    assert broker.call(lambda: core.counters.expired) == 3


def test_a_takeover_keeps_what_is_in_flight(start_broker: StartBroker, dial: Dial, publish) -> None:
    broker = start_broker(flow=IN_TURN)
    member(dial, broker, "first")
    second = member(dial, broker, "second")
    sent = publish(broker, 10)
    back = dial(broker)
    back.connect("first", clean_start=False, properties=STAYS)
    assert sorted(drain(back) + drain(second), key=int) == sent
    assert broker.call(lambda: broker.broker.core.counters.shared_moved) == 0


def test_what_is_on_disk_goes_only_to_members_on_disk_and_survives_a_restart(
    dial: Dial, publish, until: Until, tmp_path: Path
) -> None:
    with BrokerThread(data=tmp_path, flow=IN_TURN) as broker:
        core = broker.broker.core
        first = member(dial, broker, "first")
        brief = dial(broker)
        brief.connect("brief")  # its session ends with its connection
        brief.subscribe(FILTER, qos=1)
        sent = publish(broker, 10)
        first.close()
        until(lambda: broker.call(lambda: core.sessions["first"].conn) is None)
        assert broker.call(lambda: core.counters.shared_moved) == 0
        member(dial, broker, "kept")
        until(lambda: broker.call(lambda: core.counters.shared_moved) == 5)
        brief.close()  # what it has goes to a member on disk, and is written anew
        until(lambda: broker.call(lambda: core.counters.shared_moved) == 10)
    with BrokerThread(data=tmp_path, flow=IN_TURN) as broker:
        found: list[bytes] = []
        clients = []
        for name in ("first", "kept"):
            clients.append(dial(broker))
            clients[-1].connect(name, clean_start=False, properties=STAYS)

        def has_all() -> bool:  # queues are read from disk in their own time
            for client in clients:
                found.extend(drain(client))
            return len(found) >= len(sent)

        until(has_all)
    assert sorted(found, key=int) == sent


LONG = 1_000  # messages: far more than go in one turn, and than are kept in memory below
ON_DISK = StoreSettings(memory_queue=10)
ONE_BY_ONE = {Property.RECEIVE_MAXIMUM: 1}


def collect(clients: list[RawClient], count: int, until: Until) -> list[bytes]:
    """What clients get until there are so many: queues are read from disk in their own time."""
    found: list[bytes] = []

    def has_all() -> bool:
        for client in clients:
            found.extend(drain(client))
        return len(found) >= count

    until(has_all, 20)
    for client in clients:
        found.extend(drain(client))
    return found


def test_a_long_queue_on_disk_goes_to_another_member_in_order(
    start_broker: StartBroker, dial: Dial, publish, until: Until, tmp_path: Path
) -> None:
    broker = start_broker(data=tmp_path, store=ON_DISK)
    core = broker.broker.core
    member(dial, broker, "first").disconnect()
    sent = publish(broker, LONG)
    assert broker.call(lambda: core.sessions["first"].durable.tail) >= LONG - 20
    second = member(dial, broker, "second")
    assert collect([second], LONG, until) == sent
    assert broker.call(lambda: core.counters.shared_moved) == LONG
    assert broker.call(lambda: core.counters.queued_messages) == 0
    assert broker.call(lambda: core.queued_bytes) == 0
    back = dial(broker)
    back.connect("first", clean_start=False, properties=STAYS)
    assert drain(back) == []


def test_a_queue_on_disk_stays_if_its_member_has_other_subscriptions_that_filled_it(
    start_broker: StartBroker, dial: Dial, publish, until: Until, tmp_path: Path
) -> None:
    broker = start_broker(data=tmp_path, store=ON_DISK)
    first = member(dial, broker, "first")
    first.subscribe("jobs/1", qos=1)
    first.disconnect()
    sent = publish(broker, 100)
    second = member(dial, broker, "second")
    assert collect([second], 100, until) == sent
    back = dial(broker)
    back.connect("first", clean_start=False, properties=STAYS)
    assert collect([back], 100, until) == sent


def test_a_member_that_comes_back_in_the_midst_gets_the_rest_and_nothing_twice(
    start_broker: StartBroker, dial: Dial, publish, until: Until, tmp_path: Path
) -> None:
    broker = start_broker(data=tmp_path, store=ON_DISK)
    core = broker.broker.core
    member(dial, broker, "first").disconnect()
    sent = publish(broker, LONG)
    second = member(dial, broker, "second")
    until(lambda: broker.call(lambda: core.counters.shared_moved) > 0)
    back = dial(broker)
    back.connect("first", clean_start=False, properties=STAYS)
    found = collect([second, back], LONG, until)
    assert sorted(found, key=int) == sent


def test_a_queue_on_disk_waits_for_members_that_have_no_room_now(
    start_broker: StartBroker, dial: Dial, publish, until: Until, tmp_path: Path
) -> None:
    broker = start_broker(data=tmp_path, store=ON_DISK, max_queued_messages=LONG)
    core = broker.broker.core
    member(dial, broker, "first").disconnect()
    sent = publish(broker, LONG - 100)
    second = dial(broker)
    second.connect("second", properties=STAYS | ONE_BY_ONE)
    second.subscribe("other", qos=1)
    publisher = dial(broker)
    publisher.connect("")
    for number in range(LONG - 50):
        publisher.publish("other", b"-%d" % number, qos=1)
    second.subscribe(FILTER, qos=1)
    until(lambda: broker.call(lambda: core.sessions["second"].is_full))
    assert broker.call(lambda: core.sessions["first"].errand is not None)
    found = collect([second], 2 * LONG - 150, until)
    assert [each for each in found if not each.startswith(b"-")] == sent


@pytest.mark.parametrize("expiry", [0, 3600])
def test_a_session_that_ends_leaves_all_of_a_long_queue_to_the_group(
    start_broker: StartBroker, dial: Dial, publish, until: Until, tmp_path: Path, expiry: int
) -> None:
    broker = start_broker(data=tmp_path, store=ON_DISK, shared_wait=60.0, shared_stall=0)
    core = broker.broker.core
    first = dial(broker)
    first.connect("first", properties=ONE_BY_ONE | {Property.SESSION_EXPIRY_INTERVAL: expiry})
    first.subscribe(FILTER, qos=1)
    sent = publish(broker, LONG)
    second = member(dial, broker, "second")
    if expiry:
        again = dial(broker)
        again.connect("first", clean_start=True)  # ends the session
    else:
        first.close()
    assert collect([second], LONG, until) == sent
    until(lambda: broker.call(lambda: not core.estates))
    assert broker.call(lambda: core.counters.queued_messages) == 0
    assert broker.call(lambda: core.queued_bytes) == 0


def test_a_publisher_held_for_a_group_goes_on_when_the_session_of_its_member_ends(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(max_queued_messages=20, shared_stall=0)
    core = broker.broker.core
    only = dial(broker)
    only.connect("only", properties=ONE_BY_ONE)
    only.subscribe(FILTER, qos=1)
    publisher = dial(broker)
    publisher.connect("p")
    for number in range(30):
        identifier = publisher.next_identifier()
        publisher.send(Publish(topic="jobs/1", payload=b"%d" % number, qos=1, packet_identifier=identifier))
    until(lambda: broker.call(lambda: core.counters.publish_held) > 0)
    only.close()
    for _ in range(30):
        publisher.take(Puback)


def test_nobody_can_have_reports_handed_on(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    broker = start_broker()
    spy = dial(broker)
    spy.connect("spy")
    spy.subscribe("$tide/#", qos=0)
    broker.call(lambda: broker.broker.publish("$tide/load", b"from inside"))
    spy.take(Publish)
    client = member(dial, broker, "m")
    client.publish("$tide/load", LoadReport(queue_length=7, processing_time=0.1).encode_value().encode())

    def reported() -> bool:
        load = broker.broker.core.sessions["m"].load
        return load is not None and load.queue_length == 7

    until(lambda: broker.call(reported))
    assert drain(spy) == []
    refused = dial(broker)
    will = Will(topic="$tide/load", payload=b"x")
    refused.send(Connect(client_id="w", protocol_level=5, will=will))
    assert refused.take(Connack).reason_code == 0x90


def test_a_publisher_that_waits_for_a_group_goes_on_when_any_member_has_room(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(max_queued_messages=20, max_inflight=1, flow=IN_TURN, shared_stall=0)
    member(dial, broker, "first")
    second = member(dial, broker, "second")
    publisher = dial(broker)
    publisher.connect("p")
    for number in range(200):
        publisher.send(
            Publish(
                topic="jobs/1",
                payload=str(number).encode(),
                qos=1,
                packet_identifier=publisher.next_identifier(),
            )
        )
        if number == 60:
            until(lambda: broker.call(lambda: broker.broker.core.counters.publish_held) > 0)
    assert (
        broker.call(lambda: broker.broker.core.counters.publish_received) == 42
    )  # one in flight and 20 queued, each
    seen = []
    while len(seen) < 100:
        message = second.take(Publish)
        seen.append(int(message.payload))
        second.acknowledge(message)
    assert seen == sorted(set(seen))
