"""Orders of an operator: who may give them, what they do, and what an order that makes no sense is answered."""

import json
from typing import Any

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tests.integration.broker.gate_traffic import always, known, publish
from tidegate.broker.flow_settings import Backoff, FlowSettings, Priority
from tidegate.broker.hooks import Hooks
from tidegate.flow.backoff import Mode
from tidegate.mqtt import Puback, Pubcomp, Publish, ReasonCode, Will
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


class Operators:
    """Only clients whose name begins with `op` may write below `$tide/control/`."""

    def may_publish(self, client: Any, topic: str) -> bool:
        return not topic.startswith("$tide/") or client.session.client_id.startswith("op")

    def may_subscribe(self, client: Any, topic_filter: str) -> bool:
        return True

    def may_receive(self, session: Any, topic: str) -> bool:
        return True


OPERATORS = Hooks(authoriser=Operators())


def order(client: RawClient, name: str, content: object, qos: int = 1) -> Any:
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    return client.publish(f"$tide/control/{name}", payload, qos=qos)


def why(answer: Any) -> str:
    return str(answer.properties.get(Property.REASON_STRING, ""))


def is_held(broker: BrokerThread, name: str) -> bool:
    def look() -> bool:
        core = broker.broker.core
        assert core.gate is not None
        return core.sessions[name].conn in (core.gate.waiters or ())

    return broker.call(look)


def held_publisher(broker: BrokerThread, dial: Dial, until: Until) -> RawClient:
    """A publisher that is far over its habit, and held for half a minute."""
    known(broker, fast=20.0)
    fast = dial(broker)
    fast.connect("fast")
    fast.send_bytes(publish(0))
    fast.barrier()
    fast.send_bytes(b"".join(publish(number) for number in range(1, 200)))
    until(lambda: is_held(broker, "fast"))
    return fast


def test_a_held_publisher_is_released_and_left_alone_for_a_while(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=30.0), hooks=OPERATORS)
    fast = held_publisher(broker, dial, until)
    operator = dial(broker)
    operator.connect("op")
    assert order(operator, "release", {"client": "fast", "seconds": 600}).reason_code == ReasonCode.SUCCESS
    assert not is_held(broker, "fast")
    fast.send_bytes(b"".join(publish(number) for number in range(200, 600)))
    fast.barrier()
    assert not is_held(broker, "fast")
    # Excused for no time at all is not excused: the next message too many holds it again.
    assert order(operator, "release", {"client": "fast", "seconds": 0}).reason_code == ReasonCode.SUCCESS
    fast.send_bytes(b"".join(publish(number) for number in range(600, 900)))
    until(lambda: is_held(broker, "fast"))


@pytest.mark.parametrize("mode", [Mode.HOLD, Mode.DROP])
def test_a_release_holds_for_policies_that_judge_each_message(
    start_broker: StartBroker, dial: Dial, until: Until, mode: Mode
) -> None:
    broker = start_broker(
        flow=FlowSettings(backoff=Backoff(always=True, floor_rate=0, d_max=30.0, mode=mode)), hooks=OPERATORS
    )
    known(broker, fast=20.0)
    fast, reader, operator = dial(broker), dial(broker), dial(broker)
    reader.connect("reader")
    reader.subscribe("t")
    fast.connect("fast")
    fast.send_bytes(publish(0))
    fast.barrier()
    operator.connect("op")
    assert order(operator, "release", {"client": "fast"}).reason_code == ReasonCode.SUCCESS
    fast.send_bytes(b"".join(publish(number) for number in range(1, 300)))
    got = [int(reader.take(Publish).payload.split(b" ")[0]) for _ in range(300)]
    assert got == list(range(300))


def test_a_pinned_publisher_is_served_first_also_when_it_comes_back(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(flow=always(d_max=0.01), hooks=OPERATORS)
    known(broker, rare=0.1, busy=100.0)
    clients = {}
    for name in ("rare", "busy"):
        clients[name] = dial(broker)
        clients[name].connect(name)
        clients[name].publish("t", b"1", qos=1)
    operator = dial(broker)
    operator.connect("op")

    def ranks() -> dict[str, int]:
        def look() -> dict[str, int]:
            core = broker.broker.core
            assert core.gate is not None
            return {
                c.session.client_id: core.gate.rank(c) for c in core.connections if c.publisher is not None
            }

        return broker.call(look)

    assert (ranks()["rare"], ranks()["busy"]) == (1, 2)
    assert order(operator, "pin", {"client": "rare", "band": "bulk"}).reason_code == ReasonCode.SUCCESS
    assert ranks()["rare"] == 2
    clients["rare"].disconnect()
    again = dial(broker)
    again.connect("rare")
    again.publish("t", b"2", qos=1)
    assert ranks()["rare"] == 2
    assert order(operator, "pin", {"client": "rare", "band": None}).reason_code == ReasonCode.SUCCESS
    assert ranks()["rare"] == 1


def test_the_list_of_publishers_says_who_is_excused_and_pinned(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(hooks=OPERATORS)
    meter, operator = dial(broker), dial(broker)
    meter.connect("meter")
    meter.publish("t", b"1", qos=1)
    operator.connect("op")
    order(operator, "release", {"client": "meter", "seconds": 60})
    order(operator, "pin", {"client": "meter", "band": "urgent"})
    operator.subscribe("$SYS/tide/publishers")
    rows = json.loads(operator.take(Publish, topic="$SYS/tide/publishers").payload)["rows"]
    (row,) = [row for row in rows if row["client"] == "meter"]
    assert row["pinned"] == "urgent"
    assert 0 < row["excused"] <= 60


def test_who_has_no_right_is_refused_and_nothing_happens(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=30.0), hooks=OPERATORS)
    held_publisher(broker, dial, until)
    stranger, operator = dial(broker), dial(broker)
    stranger.connect("stranger")
    operator.connect("op")
    assert order(stranger, "release", {"client": "fast"}).reason_code == ReasonCode.NOT_AUTHORIZED
    assert is_held(broker, "fast")
    answer = order(operator, "release", {"client": "fast"}, qos=2)
    assert isinstance(answer, Pubcomp)
    assert answer.reason_code == ReasonCode.SUCCESS
    assert not is_held(broker, "fast")


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("release", {"client": "nobody"}, "no publisher of this name"),
        ("release", {"client": 7}, "identifier"),
        ("release", {"client": "meter", "seconds": -1}, "from 0"),
        ("release", {"client": "meter", "seconds": True}, "number"),
        ("release", b'{"client": "meter", "seconds": NaN}', "number"),
        ("release", b'{"client": "meter", "seconds": 1%s}' % (b"0" * 400), "from 0"),
        ("release", b"[" * 100_000, "JSON object"),
        ("release", b"[]", "JSON object"),
        ("release", b"\xff", "JSON object"),
        ("pin", {"client": "meter", "band": "first"}, "urgent, normal, bulk"),
        ("pin", {"client": "op", "band": "bulk"}, "no publisher of this name"),
        ("reboot", {}, "release, pin"),
    ],
)
def test_an_order_that_makes_no_sense_is_answered_with_words(
    start_broker: StartBroker, dial: Dial, name: str, content: object, words: str
) -> None:
    broker = start_broker(hooks=OPERATORS)
    meter, operator = dial(broker), dial(broker)
    meter.connect("meter")
    meter.publish("t", b"1", qos=1)
    operator.connect("op")
    answer = order(operator, name, content)
    assert isinstance(answer, Puback)
    assert answer.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert words in why(answer)


def test_classes_need_a_priority_policy_that_has_them(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(flow=FlowSettings(priority=Priority(policy="paper")), hooks=OPERATORS)
    meter = dial(broker)
    meter.connect("op")
    meter.publish("t", b"1", qos=1)
    answer = order(meter, "pin", {"client": "op", "band": "bulk"})
    assert "ageing" in why(answer)


def test_an_order_is_neither_forwarded_nor_kept_and_no_will_gives_one(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(hooks=OPERATORS)
    reader, operator, ghost = dial(broker), dial(broker), dial(broker)
    reader.connect("reader")
    reader.subscribe("$tide/control/#")
    operator.connect("op")
    operator.publish("$tide/control/release", b"{}", qos=1, retain=True)
    reader.barrier()
    reader.expect_nothing()
    late = dial(broker)
    late.connect("late")
    late.subscribe("$tide/control/release")
    late.expect_nothing()
    answer = ghost.connect("ghost", will=Will(topic="$tide/control/release", payload=b"{}"))
    assert answer.reason_code == ReasonCode.TOPIC_NAME_INVALID


def test_all_publishers_come_page_by_page_to_who_asks_by_name(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(max_connections=1_000)
    meters = [dial(broker) for _ in range(260)]
    for number, meter in enumerate(meters):
        meter.connect(f"meter-{number}")
        meter.send_bytes(publish(number))
    general, exact = dial(broker), dial(broker)
    general.connect("general")
    general.subscribe("$SYS/tide/#")
    general.take(Publish, topic="$SYS/tide/publishers")
    general.take(Publish, topic="$SYS/tide/publishers")  # a whole second has passed, and nobody asked
    exact.connect("exact")
    exact.subscribe("$SYS/tide/publishers/all")
    found: set[str] = set()
    first = json.loads(exact.take(Publish).payload)
    assert (first["page"], first["pages"]) == (0, 3)
    others = [json.loads(exact.take(Publish).payload) for _ in range(2)]
    assert [(each["round"], each["page"]) for each in others] == [(first["round"], 1), (first["round"], 2)]
    for document in (first, *others):
        found |= {row["client"] for row in document["rows"]}
    assert found == {f"meter-{number}" for number in range(260)}


def test_the_pulse_comes_every_second_with_the_counters_of_the_moment(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker()
    client = dial(broker)
    client.connect("watcher")
    client.subscribe("$SYS/tide/pulse")
    before = json.loads(client.take(Publish).payload)
    for number in range(5):
        client.send_bytes(publish(number))
    after = json.loads(client.take(Publish).payload)
    assert after["received"] - before["received"] == 5
    assert after["connections"] == 1
    assert after["uptime"] > before["uptime"]
    assert after["load"]["state"] in ("LOW", "HIGH", "OVERLOAD")
