"""More than a session or the disk can take: publishers of QoS 1 and 2 wait or are told, and nothing is lost."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.process import BrokerProcess, stalled_disk, wait_until
from tidegate.broker.settings import Features, Limits, QueueFull
from tidegate.broker.store.reader import Reader
from tidegate.broker.store.settings import StoreSettings
from tidegate.broker.store.store import FILE_NAME
from tidegate.mqtt import Pingreq, Pingresp, Puback, Publish, Pubrec
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient
from tidegate.testing.thread import BrokerThread

FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}
QUOTA_EXCEEDED = 0x97
ROOM = 50
Factory = Callable[..., BrokerThread]


def away(port: int, name: str = "reader", qos: int = 1) -> None:
    with RawClient(port) as reader:
        reader.connect(name, clean_start=False, properties=FOR_EVER)
        reader.subscribe("t", qos)
        reader.disconnect()


def take_all(port: int, count: int) -> list[bytes]:
    with RawClient(port) as reader:
        assert reader.connect("reader", clean_start=False, properties=FOR_EVER).session_present
        found = []
        while len(found) < count:
            message = reader.take(Publish)
            reader.acknowledge(message)
            found.append(message.payload)
        return found


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_is_held_while_a_stored_queue_is_full_and_goes_on_when_there_is_room(
    tidegate_broker_factory: Factory, tmp_path: Path, qos: int
) -> None:
    broker = tidegate_broker_factory(data=tmp_path, limits=Limits(max_queued_messages=ROOM))
    away(broker.port, qos=qos)
    kind = Puback if qos == 1 else Pubrec
    with RawClient(broker.port) as writer:
        writer.connect("writer")
        for number in range(1, 2 * ROOM + 1):
            writer.send(Publish(topic="t", payload=b"%d" % number, qos=qos, packet_identifier=number))
        for number in range(1, ROOM + 1):
            writer.take(kind, packet_identifier=number, reason_code=0)
        assert writer.barrier() == []
        assert broker.statistics()["publish_held"] > 0
        assert take_all(broker.port, 2 * ROOM) == [b"%d" % number for number in range(1, 2 * ROOM + 1)]
        for number in range(ROOM + 1, 2 * ROOM + 1):
            writer.take(kind, packet_identifier=number, reason_code=0)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_is_told_that_a_stored_queue_is_full_also_after_a_kill(tmp_path: Path, qos: int) -> None:
    options = ("--set", f"limits.max_queued_messages={ROOM}", "--set", "features.queue_full=refuse")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        away(broker.port, qos=qos)
        taken: list[bytes] = []

        def publish(count: int) -> int:
            refused = 0
            with RawClient(broker.port) as writer:
                writer.connect("writer")
                for _ in range(count):
                    payload = b"%d" % len(taken)
                    answer = writer.publish("t", payload, qos=qos)
                    assert answer is not None
                    if answer.reason_code == QUOTA_EXCEEDED:
                        refused += 1
                    else:
                        taken.append(payload)
            return refused

        assert publish(ROOM + 10) == 10
        broker.restart()
        assert publish(10) >= 9  # a start counts again when the first message comes
        assert take_all(broker.port, len(taken)) == taken
        assert publish(10) == 0


def send_until(broker: BrokerThread, writer: RawClient, qos: int, counter: str) -> int:
    """Publish until the broker counts somebody as held or refused; gives the number of messages sent.

    A few at a time: a held publisher that fills its buffer is not read any more, and then its pings wait as well.
    """
    for number in range(1, 1_000):
        writer.send(Publish(topic="t", payload=b"x" * 1_000, qos=qos, packet_identifier=number))
        writer.barrier()
        if broker.statistics()[counter]:
            return number
    raise AssertionError(f"{counter} stayed 0")


def test_publishers_are_held_while_the_disk_does_not_keep_up(
    tidegate_broker_factory: Factory, tmp_path: Path
) -> None:
    store = StoreSettings(max_uncommitted_bytes=65_536, retry=0.05)
    broker = tidegate_broker_factory(data=tmp_path, store=store)
    away(broker.port)
    with RawClient(broker.port, timeout=20) as writer:
        writer.connect("writer")
        with stalled_disk(tmp_path):
            count = send_until(broker, writer, 1, "publish_held")
            assert writer.barrier() == []  # no acknowledgement, but answers
            assert broker.statistics()["store_uncommitted_bytes"] < 2 * store.max_uncommitted_bytes
        for number in range(1, count + 1):
            writer.take(Puback, packet_identifier=number, reason_code=0)
    assert len(take_all(broker.port, count)) == count


def test_a_repetition_of_a_message_that_was_taken_is_not_refused(
    tidegate_broker_factory: Factory, tmp_path: Path
) -> None:
    """0x97 would free the identifier for the client, while the broker still takes it for the message it has."""
    broker = tidegate_broker_factory(
        data=tmp_path,
        store=StoreSettings(max_uncommitted_bytes=65_536, retry=0.05),
        features=Features(queue_full=QueueFull.REFUSE),
    )
    away(broker.port, qos=2)
    with RawClient(broker.port, timeout=20) as writer, RawClient(broker.port, timeout=20) as again:
        writer.connect("writer", clean_start=False, properties=FOR_EVER)
        with stalled_disk(tmp_path):
            send_until(broker, writer, 2, "publish_refused")
            assert again.connect("writer", clean_start=False, properties=FOR_EVER).session_present
            again.send(Publish(topic="t", payload=b"x" * 1_000, qos=2, packet_identifier=1, dup=True))
            again.barrier()
        # Refusals wait for the commit as well: acknowledgements keep their order.
        assert again.take(Pubrec, packet_identifier=1).reason_code == 0


@pytest.mark.serial
def test_a_slow_disk_keeps_nobody_waiting_who_does_not_need_it(
    tidegate_broker_factory: Factory, tmp_path: Path
) -> None:
    broker = tidegate_broker_factory(data=tmp_path, store=StoreSettings(retry=0.05))
    away(broker.port)
    longest = 0.0
    with RawClient(broker.port, timeout=20) as writer, RawClient(broker.port) as other:
        writer.connect("writer")
        other.connect("other")
        other.subscribe("quick", 0)
        for turn in range(10):
            with stalled_disk(tmp_path):
                for number in range(1, 51):
                    identifier = turn * 50 + number
                    writer.send(Publish(topic="t", payload=b"x" * 500, qos=1, packet_identifier=identifier))
                for _ in range(5):
                    started = time.monotonic()
                    other.send(Pingreq())
                    other.take(Pingresp)
                    longest = max(longest, time.monotonic() - started)
                    started = time.monotonic()
                    other.publish("quick", b"x")
                    other.take(Publish, topic="quick")
                    longest = max(longest, time.monotonic() - started)
            for number in range(1, 51):
                writer.take(Puback, packet_identifier=turn * 50 + number)
    assert longest < 0.1
    assert len(take_all(broker.port, 500)) == 500


def test_a_session_that_ends_with_a_long_queue_on_disk_leaves_no_message_behind(
    tidegate_broker_factory: Factory, tmp_path: Path
) -> None:
    broker = tidegate_broker_factory(data=tmp_path, store=StoreSettings(memory_queue=10))
    away(broker.port)
    away(broker.port, "other")
    with RawClient(broker.port) as writer:
        writer.connect("writer")
        for number in range(200):
            writer.publish("t", b"%d" % number, qos=1)
    with RawClient(broker.port) as other:
        other.connect("other", clean_start=True)
        other.publish("sync", b"x", qos=1, retain=True)
    assert take_all(broker.port, 200) == [b"%d" % number for number in range(200)]
    with RawClient(broker.port) as reader:
        reader.connect("reader", clean_start=True)
        reader.publish("sync", b"", qos=1, retain=True)

    def count() -> int:
        reader = Reader(tmp_path / FILE_NAME)
        try:
            return reader.counts()["message"]
        finally:
            reader.close()

    wait_until(lambda: count() == 0, "every message row is gone")
