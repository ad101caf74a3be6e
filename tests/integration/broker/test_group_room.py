"""A group without room: publishers wait for the members a message would go to, and nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tests.integration.broker.test_handing_on import FILTER, STAYS, drain, member
from tidegate.broker.flow_settings import FlowSettings, SharedRule
from tidegate.mqtt import Puback, Publish
from tidegate.mqtt.properties import Properties, Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

ROOM = 20  # messages a session may have waiting
ONE: Properties = {Property.RECEIVE_MAXIMUM: 1}


def special(dial: Dial, broker: BrokerThread, name: str, properties: Properties) -> RawClient:
    """A member with properties of its own."""
    client = dial(broker)
    client.connect(name, properties={**STAYS, **properties})
    client.subscribe(FILTER, qos=1)
    return client


def flood(dial: Dial, broker: BrokerThread, until: Until, count: int, *, is_held: bool = True) -> RawClient:
    """A publisher that waits for no acknowledgement, and is held."""
    before = broker.call(lambda: broker.broker.core.counters.publish_held)
    client = dial(broker)
    client.connect("flood")
    for number in range(count):
        client.send(Publish(topic="jobs/1", payload=str(number).encode(), qos=1, packet_identifier=number + 1))
    if is_held:
        until(lambda: broker.call(lambda: broker.broker.core.counters.publish_held) > before)
    return client


def counters(broker: BrokerThread) -> dict[str, int]:
    return broker.call(broker.broker.core.counters.snapshot)


def work_off(until: Until, worker: RawClient, total: int) -> list[bytes]:
    found: list[bytes] = []

    def has_all() -> bool:
        found.extend(drain(worker))
        return len(found) >= total

    until(has_all, 15.0)
    return found


@pytest.mark.parametrize("has_data", [False, True])
def test_a_member_that_is_away_does_not_make_the_group_take_more_than_the_others_can(
    start_broker: StartBroker, dial: Dial, until: Until, tmp_path: Path, has_data: bool
) -> None:
    broker = start_broker(max_queued_messages=ROOM, data=tmp_path if has_data else None)
    away = member(dial, broker, "away")
    slow = special(dial, broker, "slow", ONE)
    away.disconnect()
    until(lambda: broker.call(lambda: broker.broker.core.sessions["away"].conn) is None)
    publisher = flood(dial, broker, until, 100)
    found = work_off(until, slow, 100)
    assert sorted(found, key=int) == [str(n).encode() for n in range(100)]
    for _ in range(100):
        publisher.take(Puback)
    assert counters(broker)["dropped"] == 0


def test_a_publisher_goes_on_when_the_last_member_unsubscribes(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(max_queued_messages=ROOM)
    last = special(dial, broker, "last", ONE)
    publisher = flood(dial, broker, until, 40)
    last.unsubscribe(FILTER)
    for _ in range(40):
        publisher.take(Puback)


def test_a_publisher_goes_on_when_a_member_with_room_joins(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(max_queued_messages=ROOM)
    special(dial, broker, "stuck", ONE)
    publisher = flood(dial, broker, until, 40)
    helper = member(dial, broker, "helper")
    for _ in range(40):
        publisher.take(Puback)
    assert len(drain(helper)) >= 40 - ROOM - 1


def test_what_a_session_on_disk_had_goes_to_a_member_in_memory_when_it_ends(
    start_broker: StartBroker, dial: Dial, until: Until, tmp_path: Path
) -> None:
    broker = start_broker(data=tmp_path, shared_wait=60.0)
    ends = member(dial, broker, "ends")
    flood(dial, broker, until, 30, is_held=False)
    until(lambda: counters(broker)["publish_received"] == 30)
    ends.close()
    until(lambda: broker.call(lambda: broker.broker.core.sessions["ends"].conn) is None)
    stays = dial(broker)
    stays.connect("stays")  # no session to come back to, so nothing of it is on disk
    stays.subscribe(FILTER, qos=1)
    assert drain(stays) == []
    dial(broker).connect("ends", clean_start=True)
    assert sorted(work_off(until, stays, 30), key=int) == [str(n).encode() for n in range(30)]
    assert counters(broker)["discarded"] == 0


def test_what_a_session_had_waits_for_a_member_that_is_away(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker()
    away = member(dial, broker, "away")
    away.disconnect()
    until(lambda: broker.call(lambda: broker.broker.core.sessions["away"].conn) is None)
    ends = dial(broker)
    ends.connect("ends")
    ends.subscribe(FILTER, qos=1)
    flood(dial, broker, until, 10, is_held=False)
    until(lambda: counters(broker)["publish_received"] == 10)
    ends.disconnect()
    until(lambda: "ends" not in broker.call(lambda: list(broker.broker.core.sessions)))
    back = dial(broker)
    back.connect("away", clean_start=False, properties=STAYS)
    assert sorted(drain(back), key=int) == [str(n).encode() for n in range(10)]


def test_what_nobody_can_take_is_counted(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    broker = start_broker()
    alone = dial(broker)
    alone.connect("alone", properties=ONE)
    alone.subscribe(FILTER, qos=1)
    flood(dial, broker, until, 10, is_held=False)
    until(lambda: counters(broker)["publish_received"] == 10)
    alone.disconnect()
    until(lambda: counters(broker)["discarded"] == 10)


def test_messages_of_one_group_wait_although_those_of_another_have_nobody(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(max_queued_messages=ROOM)
    both = dial(broker)
    both.connect("both")
    both.subscribe("$share/alone/only", qos=1)
    both.subscribe(FILTER, qos=1)
    publisher = dial(broker)
    publisher.connect("")
    publisher.publish("only", b"nobody else", qos=1)
    for number in range(5):
        publisher.publish("jobs/1", str(number).encode(), qos=1)
    busy = special(dial, broker, "busy", ONE)
    busy.subscribe("own", qos=1)
    for _ in range(ROOM + 1):
        publisher.publish("own", b"", qos=1)
    both.disconnect()
    until(lambda: "both" not in broker.call(lambda: list(broker.broker.core.sessions)))
    found = work_off(until, busy, ROOM + 1 + 5)
    assert sorted(payload for payload in found if payload) == [str(n).encode() for n in range(5)]


def test_a_member_that_comes_and_goes_while_others_are_full_keeps_nothing(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(max_queued_messages=ROOM)
    flaps = member(dial, broker, "flaps")
    flood(dial, broker, until, ROOM - 5, is_held=False)
    until(lambda: counters(broker)["publish_received"] == ROOM - 5)
    busy = special(dial, broker, "busy", ONE)
    busy.subscribe("own", qos=1)
    publisher = dial(broker)
    publisher.connect("")
    for _ in range(ROOM + 1):
        publisher.publish("own", b"", qos=1)
    core = broker.broker.core
    flaps.close()
    until(lambda: broker.call(lambda: core.sessions["flaps"].errand is not None))
    for _ in range(2):
        back = dial(broker)
        back.connect("flaps", clean_start=False, properties=STAYS)
        back.close()
    until(lambda: broker.call(lambda: core.sessions["flaps"].conn) is None)
    found = work_off(until, busy, ROOM + 1 + ROOM - 5)
    assert len([payload for payload in found if payload]) == ROOM - 5


def test_a_message_that_is_too_large_for_a_member_does_not_starve_it(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker()
    small = special(dial, broker, "small", {Property.MAXIMUM_PACKET_SIZE: 200})
    publisher = dial(broker)
    publisher.connect("")
    publisher.publish("jobs/1", bytes(1000), qos=1)
    large = member(dial, broker, "large")
    counts = [0, 0]
    for number in range(60):
        publisher.publish("jobs/1", str(number).encode(), qos=1)
        counts[0] += len(drain(small))
        counts[1] += len(drain(large))
    assert sum(counts) == 60
    assert min(counts) > 10


def test_a_member_that_would_not_keep_a_message_is_not_given_it_while_it_is_away(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=FlowSettings(shared=(SharedRule(policy="round_robin"),)))
    clients = []
    for name, qos in (("zero", 0), ("one", 1)):
        client = dial(broker)
        client.connect(name, properties=STAYS)
        client.subscribe(FILTER, qos=qos)
        clients.append(client)
    for client in clients:
        client.disconnect()
    until(lambda: not broker.call(lambda: [s for s in broker.broker.core.sessions.values() if s.conn]))
    flood(dial, broker, until, 10, is_held=False)
    back = dial(broker)
    until(lambda: counters(broker)["publish_received"] == 10)
    back.connect("one", clean_start=False, properties=STAYS)
    assert len(drain(back)) == 10
