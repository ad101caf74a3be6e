"""Subscribers that never read: the others do not notice, memory is bounded, publishers are not held for ever.

`python -m bench.soak slow-readers` is the full-size version.
"""

import time

import pytest

from bench.soak import slow_readers
from tests.resilience.conftest import StartBroker
from tests.resilience.support import joined, never_reading, no_more_than, wait_metric
from tidegate.mqtt import Publish, encode_packet
from tidegate.testing.raw import RawClient

pytestmark = pytest.mark.serial

ATTEMPTS = 5  # a measurement may be disturbed by another program; five in a row are not


def test_100_slow_subscribers_change_neither_the_latency_of_healthy_ones_nor_the_memory_bound() -> None:
    ratios: list[float] = []
    for _ in range(ATTEMPTS):
        found = slow_readers.run(qos=0, rounds=4, seconds=1.0, long_seconds=2.0, max_memory=250_000_000)
        assert found.peak_bytes < found.max_memory_bytes
        assert found.metrics["dropped_total"] > 0  # the slow ones were over their bound
        assert all(phase.delivered for phase in found.phases)
        ratios.append(found.ratio)
        if found.ratio <= 1.5:
            break
    assert min(ratios) <= 1.5


def test_a_subscriber_whose_socket_stays_full_is_cut_off_and_its_publishers_go_on(start: StartBroker) -> None:
    broker = start("limits.write_timeout=1.0", "limits.max_queued_bytes=8000000")
    with (
        never_reading(broker.port, "slow", "big", qos=1),
        joined(broker, "publisher") as publisher,
        joined(broker, "healthy") as healthy,
    ):
        healthy.subscribe("big", qos=1)
        began = time.monotonic()
        for _ in range(200):  # 20 MB: 8 in flight, more than the kernel takes for the slow one, and 8 queued
            publisher.publish("big", bytes(100_000), qos=1)
            healthy.acknowledge(healthy.take(Publish))
        assert time.monotonic() - began < 10
        metrics = broker.metrics()
        assert metrics['closes_total{reason="client did not read"}'] == 1
        assert metrics["publish_held_total"] > 0
        assert metrics["dropped_total"] == 0


def test_a_subscriber_that_reads_and_never_acknowledges_holds_its_publishers_for_hold_timeout_only(
    start: StartBroker,
) -> None:
    broker = start("limits.hold_timeout=1.0", "limits.max_queued_messages=100", "limits.max_inflight=10")
    with joined(broker, "mute") as mute, joined(broker, "publisher") as publisher:
        mute.subscribe("t", qos=1)
        for _ in range(110):
            publisher.publish("t", b"x", qos=1)
        began = time.monotonic()
        publisher.publish("t", b"the first that is held", qos=1)
        assert 0.5 < time.monotonic() - began < 5
        assert broker.metrics()["dropped_total"] >= 1


def test_a_subscriber_that_comes_back_to_life_gets_all_that_was_held_for_it(start: StartBroker) -> None:
    broker = start("limits.max_queued_messages=100", "limits.max_inflight=10")
    total = 500
    with (
        joined(broker, "late", properties=no_more_than(10)) as late,
        joined(broker, "publisher") as publisher,
    ):
        late.subscribe("t", qos=1)
        publisher.send_bytes(b"".join(_publish(publisher, number) for number in range(total)))
        wait_metric(broker, "publish_held_total", lambda value: value > 0)
        payloads = []
        for _ in range(total):
            message = late.take(Publish)
            payloads.append(int(message.payload))
            late.acknowledge(message)
        assert payloads == list(range(total))
        assert broker.metrics()["dropped_total"] == 0


def _publish(client: RawClient, number: int) -> bytes:
    packet = Publish(
        topic="t", payload=str(number).encode(), qos=1, packet_identifier=client.next_identifier()
    )
    return encode_packet(packet, client.version)
