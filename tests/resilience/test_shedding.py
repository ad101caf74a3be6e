"""What a node gives up as its memory runs out, in which order, and that it takes everything up again."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from bench.soak.broker import BrokerProcess
from tests.resilience.conftest import StartBroker
from tests.resilience.support import joined, knock, never_reading, no_more_than, wait_metric
from tidegate.mqtt import Pingreq, Pingresp, Property, Puback, Publish, ReasonCode, encode_packet
from tidegate.testing.raw import RawClient

pytestmark = pytest.mark.serial

BOUND = 20_000_000  # bytes queued for all sessions
PAYLOAD = 50_000
NONE, NO_NEW_CLIENTS, DROP_QOS0, HOLD = range(4)


def fill(broker: BrokerProcess, publisher: RawClient, share: float) -> None:
    """Queue messages until they are this share of the bound, or the publisher is held."""
    while (metrics := broker.metrics())["queued_bytes"] < share * BOUND and metrics["memory_pressure"] < HOLD:
        if share < 0.95:
            publisher.publish("fill", bytes(PAYLOAD), qos=1)
        else:  # the last one is not acknowledged
            identifier = publisher.next_identifier()
            publisher.send(Publish(topic="fill", payload=bytes(PAYLOAD), qos=1, packet_identifier=identifier))
            publisher.barrier()


def drain(subscriber: RawClient, count: int) -> None:
    for _ in range(count):
        subscriber.acknowledge(subscriber.take(Publish))


@contextmanager
def slow_reader(broker: BrokerProcess, publisher: RawClient) -> Iterator[None]:
    """A QoS 0 subscriber of `zero` whose socket is full."""
    with never_reading(broker.port, "slow", "zero", qos=0):
        while not broker.metrics()["queued_bytes"]:
            publisher.publish("zero", bytes(PAYLOAD))
        yield


def test_new_clients_go_first_then_qos_0_of_slow_readers_then_publishers_wait_and_all_recover(
    start: StartBroker,
) -> None:
    broker = start(f"limits.max_total_queued_bytes={BOUND}")
    with (
        joined(broker, "sink", properties=no_more_than(1)) as sink,
        joined(broker, "publisher", keep_alive=2) as publisher,
        joined(broker, "zero") as zero,
        joined(broker, "healthy") as healthy,
        slow_reader(broker, zero),
    ):
        sink.subscribe("fill", qos=1)  # and acknowledges nothing for now
        healthy.subscribe("zero")

        def is_dropped_for_the_slow_one() -> bool:
            """One QoS 0 message to both readers; the healthy one gets it at every step."""
            before = broker.metrics()["dropped_total"]
            zero.publish("zero", b"now")
            healthy.take(Publish, payload=b"now")
            return broker.metrics()["dropped_total"] > before

        fill(broker, publisher, 0.5)
        assert broker.metrics()["memory_pressure"] == NONE
        assert knock(broker, "early").reason_code == 0
        assert not is_dropped_for_the_slow_one()

        fill(broker, publisher, 0.82)
        wait_metric(broker, "memory_pressure", lambda step: step == NO_NEW_CLIENTS)
        assert knock(broker, "new").reason_code == ReasonCode.SERVER_BUSY
        assert not is_dropped_for_the_slow_one()
        assert publisher.publish("elsewhere", b"", qos=1) is not None

        fill(broker, publisher, 0.92)
        wait_metric(broker, "memory_pressure", lambda step: step == DROP_QOS0)
        assert knock(broker, "new").reason_code == ReasonCode.SERVER_BUSY
        assert is_dropped_for_the_slow_one()
        assert publisher.publish("elsewhere", b"", qos=1) is not None

        fill(broker, publisher, 0.96)
        wait_metric(broker, "memory_pressure", lambda step: step == HOLD)
        publisher.send(Publish(topic="elsewhere", qos=1, packet_identifier=60_000))
        publisher.send(Pingreq())
        publisher.expect(Pingresp)  # and no PUBACK before it
        assert is_dropped_for_the_slow_one()
        # It says nothing for twice its keep-alive and is not blamed for it: it is held.
        publisher.expect_nothing(4.0)

        drain(sink, int(0.5 * BOUND / PAYLOAD))
        wait_metric(broker, "memory_pressure", lambda step: step == NONE)
        publisher.take(Puback, packet_identifier=60_000)
        assert knock(broker, "new").reason_code == 0
        assert not is_dropped_for_the_slow_one()


def test_a_client_whose_own_queue_fills_the_node_may_come_back_and_empty_it(start: StartBroker) -> None:
    broker = start(f"limits.max_total_queued_bytes={BOUND}", "limits.max_queued_bytes=100000000")
    forever = {Property.SESSION_EXPIRY_INTERVAL: 1_000}
    with joined(broker, "owner", clean_start=False, properties=forever) as owner:
        owner.subscribe("fill", qos=1)
        owner.disconnect()
    with joined(broker, "filler") as filler:
        fill(broker, filler, 0.96)
        wait_metric(broker, "memory_pressure", lambda step: step == HOLD)
        assert knock(broker, "stranger").reason_code == ReasonCode.SERVER_BUSY
        with joined(broker, "owner", clean_start=False, properties=forever) as owner:
            while broker.metrics()["queued_messages"]:
                owner.acknowledge(owner.take(Publish))
        wait_metric(broker, "memory_pressure", lambda step: step == NONE)
        assert filler.publish("elsewhere", b"", qos=1) is not None


def test_what_waits_for_slow_qos_0_readers_does_not_make_qos_1_publishers_wait(start: StartBroker) -> None:
    """QoS 0 may be dropped, so it is: it must not reach the step where publishers wait."""
    broker = start(f"limits.max_total_queued_bytes={BOUND}", "limits.max_queued_bytes=4000000")
    with (
        ExitStack() as readers,
        joined(broker, "zero") as zero,
        joined(broker, "publisher") as publisher,
        joined(broker, "healthy") as healthy,
    ):
        for number in range(10):  # ten queues of 4 MB are twice the bound
            readers.enter_context(never_reading(broker.port, f"slow-{number}", "zero", qos=0))
        healthy.subscribe("zero")
        flood = encode_packet(Publish(topic="zero", payload=bytes(PAYLOAD)), 5) * 200
        zero.send_bytes(flood)  # faster than the broker looks at its memory
        for _ in range(200):
            healthy.take(Publish)
        assert broker.metrics()["dropped_total"] > 0
        wait_metric(broker, "memory_pressure", lambda step: step < HOLD, seconds=2.0)
        assert publisher.publish("elsewhere", b"", qos=1) is not None


def test_near_its_memory_bound_publishers_are_held_and_go_on_when_queues_are_read(start: StartBroker) -> None:
    """The same by what the kernel counts, not by what is queued."""
    idle = start().resident_bytes()
    broker = start(f"limits.max_memory={idle * 2 + 100_000_000}", "limits.max_queued_bytes=1000000000")
    with joined(broker, "late", properties=no_more_than(1)) as late, joined(broker, "publisher") as publisher:
        late.subscribe("fill", qos=1)
        sent = publish_until_held(publisher)
        assert broker.metrics()["memory_pressure"] == HOLD
        assert knock(broker, "new").reason_code == ReasonCode.SERVER_BUSY
        drain(late, sent)
        publisher.expect(Puback, packet_identifier=sent)
        wait_metric(broker, "memory_pressure", lambda step: step == NONE)
        assert knock(broker, "new").reason_code == 0


def test_the_memory_bound_holds_against_a_publisher_at_full_speed(start: StartBroker) -> None:
    idle = start().resident_bytes()
    bound = idle * 2 + 100_000_000
    broker = start(f"limits.max_memory={bound}", "limits.max_queued_bytes=1000000000")
    with joined(broker, "late", properties=no_more_than(1)) as late, joined(broker, "publisher") as publisher:
        late.subscribe("fill", qos=1)
        publish_until_held(publisher)
        assert broker.peak_bytes() < bound


def publish_until_held(publisher: RawClient) -> int:
    """Publish to `fill` at QoS 1 as fast as it is acknowledged; gives the number of messages, the last one held."""
    for number in range(1, 20_000):
        publisher.send(Publish(topic="fill", payload=bytes(PAYLOAD), qos=1, packet_identifier=number))
        try:
            publisher.expect(Puback, timeout=1.0, packet_identifier=number)
        except TimeoutError:
            return number
    raise AssertionError("nobody was held")
