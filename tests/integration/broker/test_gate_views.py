"""What an operator sees of the gate: `$SYS` documents with bounded rows, and metrics with bounded labels."""

import json
from typing import Any

import pytest
from prometheus_client.core import Metric

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tests.integration.broker.gate_traffic import always, known, publish
from tidegate.broker.flow_settings import BANDS, Backoff, BandName, FlowSettings, LoadLimits, PriorityClass
from tidegate.broker.hooks import ConnectRequest, Hooks, Verdict
from tidegate.broker.metrics import BrokerCollector
from tidegate.flow.backoff import Mode
from tidegate.mqtt import Publish
from tidegate.mqtt.properties import Properties, Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

DAY: Properties = {Property.SESSION_EXPIRY_INTERVAL: 86_400}


class AnyPassword:
    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(user=request.username)


def strict(text: bytes) -> dict[str, Any]:
    """JSON as other languages read it: Python alone takes Infinity and NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    document: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return document


def watch(dial: Dial, broker: BrokerThread, topic: str) -> RawClient:
    client = dial(broker)
    client.connect("watcher-" + topic.rpartition("/")[2])
    client.subscribe(topic)
    return client


def document(watcher: RawClient) -> dict[str, Any]:
    return strict(watcher.expect(Publish).payload)


def hold(broker: BrokerThread, client: RawClient, until: Until, name: str) -> None:
    """More messages than its rate allows, until it is held."""
    client.send_bytes(publish(0))
    client.barrier()
    client.send_bytes(b"".join(publish(number) for number in range(1, 200)))

    def is_held() -> bool:
        core = broker.broker.core
        assert core.gate is not None
        return core.sessions[name].conn in (core.gate.waiters or ())

    until(lambda: broker.call(is_held))


def test_publishers_tell_who_is_held_and_why(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    guests = PriorityClass(name="guests", band=BandName.BULK, listener="mqtt://guests")
    flow = FlowSettings(backoff=Backoff(always=True, floor_rate=0, d_max=30.0), classes=(guests,))
    broker = start_broker(flow=flow)
    known(broker, fast=20.0, slow=0.1)
    fast, slow = dial(broker), dial(broker)
    fast.connect("fast")
    slow.connect("slow")
    slow.publish("t", b"1", qos=1)
    hold(broker, fast, until, "fast")
    fast.send_bytes(publish(200, size=1_000))
    watcher = watch(dial, broker, "$SYS/tide/publishers")
    found = document(watcher)
    assert found["total"] == 2
    assert found["at"] > 1_700_000_000
    first, second = found["rows"]
    assert (first["client"], first["state"], second["client"], second["state"]) == (
        "fast",
        "held",
        "slow",
        "normal",
    )
    assert set(first) == set(second)
    assert (first["user"], first["class"]) == (None, None)
    assert first["address"].startswith("127.0.0.1")
    assert first["trained_rate"] == pytest.approx(20.0, rel=0.1)
    assert first["held_bytes"] > 1_000
    assert first["rank"] > second["rank"] == 1
    assert second["hold"] == second["held_bytes"] == 0
    # Again and again, while somebody subscribes.
    assert document(watcher)["at"] > found["at"]


def test_a_service_is_not_judged_for_what_others_ask(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    services = PriorityClass(name="services", band=BandName.BULK, user="space", service=True)
    flow = FlowSettings(backoff=Backoff(always=True, floor_rate=0, d_max=30.0), classes=(services,))
    broker = start_broker(flow=flow, hooks=Hooks(authenticator=AnyPassword()))
    known(broker, space=20.0, other=20.0)
    space, other = dial(broker), dial(broker)
    space.connect("space", username="space", password=b"x")
    other.connect("other", username="other", password=b"x")
    hold(broker, other, until, "other")
    space.send_bytes(b"".join(publish(number) for number in range(500)))
    space.barrier()
    gate = broker.broker.core.gate
    assert gate is not None
    assert broker.call(lambda: [conn.session.client_id for conn in gate.waiters or ()]) == ["other"]
    place = broker.call(lambda: gate.priority.place(broker.broker.core.sessions["space"].conn.publisher.key))
    assert place >= BANDS[BandName.BULK].first  # its band is kept
    space.disconnect()
    until(lambda: broker.call(lambda: "space" not in broker.broker.core.sessions))
    assert broker.call(lambda: len(gate._free)) == 0


def test_no_more_than_a_hundred_rows_the_held_ones_first(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=30.0))
    names = [f"p{number}" for number in range(130)]
    known(broker, **dict.fromkeys(names, 20.0))
    clients = {name: dial(broker) for name in names}
    for name, client in clients.items():
        client.connect(name)
        client.send_bytes(publish(0))
    held = ["p3", "p77", "p129"]
    for name in held:
        hold(broker, clients[name], until, name)
    until(
        lambda: (
            broker.call(lambda: sum(c.publisher is not None for c in broker.broker.core.connections)) == 130
        )
    )
    found = document(watch(dial, broker, "$SYS/tide/publishers"))
    assert (found["total"], len(found["rows"])) == (130, 100)
    assert {row["client"] for row in found["rows"][:3]} == set(held)
    assert [row["state"] for row in found["rows"][:4]] == ["held"] * 3 + ["normal"]
    assert len({row["client"] for row in found["rows"]}) == 100
    until(lambda: broker.statistics()["publishers"].get("held") == 3, 20.0)
    assert broker.statistics()["publishers"]["normal"] == 127

    metrics = list(BrokerCollector("node", broker.statistics).collect())
    assert labels(metrics, "tidegate_publisher_rate") == 10
    assert labels(metrics, "tidegate_publisher_trained_rate") == 10
    assert labels(metrics, "tidegate_publishers") == 4
    assert all(len(metric.samples) <= 20 for metric in metrics)
    by_name = {metric.name: metric.samples[0].value for metric in metrics if len(metric.samples) == 1}
    assert (by_name["tidegate_backoff_held"], by_name["tidegate_backoff_known"]) == (3.0, 130.0)
    assert by_name["tidegate_backoff_holds"] == 3.0
    assert by_name["tidegate_backoff_held_seconds"] > 3.0


def labels(metrics: list[Metric], name: str) -> int:
    return next(len(metric.samples) for metric in metrics if metric.name == name)


def test_rates_of_messages_that_come_together_are_json(start_broker: StartBroker, dial: Dial) -> None:
    """To the paper's rule, messages that come together are infinitely fast."""
    broker = start_broker(flow=FlowSettings(backoff=Backoff(policy="paper", mode=Mode.DROP)))
    client = dial(broker)
    client.connect("p")
    client.send_bytes(b"".join(publish(number) for number in range(50)))
    client.barrier()
    found = document(watch(dial, broker, "$SYS/tide/publishers"))
    assert found["rows"][0]["client"] == "p"


def test_queues_tell_the_longest_first(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker()
    publisher = dial(broker)
    publisher.connect("p")
    for number in range(120):
        client = dial(broker)
        client.connect(f"s{number}", properties=DAY)
        client.subscribe(f"q/{number}" if number % 2 else "nothing", qos=1)
        client.disconnect()
    for number in range(1, 120, 2):
        for _ in range(1 + (number == 51) * 4):
            publisher.publish(f"q/{number}", bytes(100), qos=1)
    found = document(watch(dial, broker, "$SYS/tide/queues"))
    assert (found["total"], len(found["rows"])) == (60, 60), "empty queues are not told"
    first = found["rows"][0]
    assert (first["client"], first["queued_messages"], first["connected"], first["dropped"]) == (
        "s51",
        5,
        False,
        0,
    )
    assert first["queued_bytes"] >= 500
    sizes = [row["queued_bytes"] for row in found["rows"]]
    assert sizes == sorted(sizes, reverse=True)


def test_at_most_a_hundred_queues_are_told(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker()
    publisher = dial(broker)
    publisher.connect("p")
    for number in range(110):
        client = dial(broker)
        client.connect(f"s{number}", properties=DAY)
        client.subscribe("q/#", qos=1)
        client.disconnect()
    publisher.publish("q/all", b"x", qos=1)
    found = document(watch(dial, broker, "$SYS/tide/queues"))
    assert (found["total"], len(found["rows"])) == (110, 100)


def test_load_is_retained_and_told_at_once_when_it_changes(start_broker: StartBroker, dial: Dial) -> None:
    limits = LoadLimits(high_wait=0.0, overload_wait=3_600.0, calm=0.5)
    broker = start_broker(flow=FlowSettings(load=limits), sys_interval=3_600.0)
    watcher = dial(broker)
    watcher.connect("watcher")
    watcher.subscribe("$SYS/tide/load")
    first = watcher.take(Publish, retain=True)  # a change by this very work may have been told before
    keys = {"state", "wait_ms", "lag_ms", "memory_share", "queue_share", "waiting", "held"}
    assert set(strict(first.payload)) == keys
    seen = {strict(first.payload)["state"]}
    client = dial(broker)
    client.connect("p")
    client.publish("t", b"x", qos=1)
    while seen != {"LOW", "HIGH"}:  # any work is HIGH here, and none for half a second is LOW
        seen.add(document(watcher)["state"])


def test_without_subscribers_no_document_is_made(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    broker = start_broker(sys_interval=0.5)
    client = dial(broker)
    client.connect("p")
    client.publish("t", b"x", qos=1)
    until(lambda: bool(broker.statistics()["publishers"]), 5.0)
    late = dial(broker)
    late.connect("late")
    late.subscribe("$SYS/tide/publishers")
    assert [packet for packet in late.barrier() if isinstance(packet, Publish) and packet.retain] == []
