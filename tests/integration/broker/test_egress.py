"""A client that does not read harms only itself: others get everything, its drops are counted one by one."""

import socket
import time

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tidegate.mqtt import Publish, encode_packet
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

MESSAGE = 10_000


def small_buffers(client: RawClient) -> None:
    """Let the socket hold little, so that a client that stops reading is noticed soon.

    Not less than some segments of the loopback device: a smaller window makes reading slow as well.
    """
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)


def flood(publisher: RawClient, topic: str, count: int, size: int = MESSAGE, start: int = 0) -> None:
    """QoS 0 messages, each with its number in front, in a few large writes."""
    for first in range(start, start + count, 50):
        batch = range(first, min(first + 50, start + count))
        publisher.send_bytes(
            b"".join(
                encode_packet(Publish(topic=topic, payload=b"%08d" % number + bytes(size)), publisher.version)
                for number in batch
            )
        )
    publisher.barrier(20.0)


def numbers(client: RawClient) -> list[int]:
    """Take what is in the inbox."""
    found = [int(p.payload[:8]) for p in client.inbox if isinstance(p, Publish)]
    client.inbox.clear()
    return found


def read_until(client: RawClient, number: int, seconds: float = 20.0) -> list[int]:
    """Read on until the message with this number came."""
    deadline = time.monotonic() + seconds
    found: list[int] = []
    while number not in found[-100:]:
        client._fill(deadline)
        found += numbers(client)
    return found


def read_all(broker: BrokerThread, client: RawClient) -> list[int]:
    """Read until nothing waits for anybody; the last PINGRESP stands behind all that was written before."""
    deadline = time.monotonic() + 20.0
    found: list[int] = []
    is_last = False
    while not is_last:
        is_last = broker.statistics()["queued_bytes"] == 0
        found += [int(p.payload[:8]) for p in client.barrier(20.0) if isinstance(p, Publish)]
        assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize("version", [4, 5])
def test_a_slow_subscriber_is_isolated_and_its_drops_are_counted_exactly(
    start_broker: StartBroker, dial: Dial, version: int
) -> None:
    broker = start_broker(max_queued_bytes=200_000)
    slow, quick, publisher = dial(broker, version), dial(broker, version), dial(broker, version)
    small_buffers(slow)
    for client, name in ((slow, "slow"), (quick, "quick"), (publisher, "p")):
        client.connect(name)
    slow.subscribe("t")
    quick.subscribe("t")
    sent = 0
    got: list[int] = []
    while not broker.call(lambda: broker.broker.core.sessions["slow"].dropped):
        flood(publisher, "t", 10, start=sent)
        sent += 10
        got += read_until(quick, sent - 1)
        assert sent < 20_000, "the slow client was never noticed"
    assert got == list(range(sent)), "the quick one gets everything, in order"
    assert broker.statistics()["queued_bytes"] <= 200_000
    dropped = broker.statistics()["dropped"]
    received = read_all(broker, slow)
    assert received == sorted(received)
    assert sent - len(received) == dropped
    flood(publisher, "t", 1, start=sent)
    assert read_until(slow, sent) == [sent], "it is served again"
    assert broker.statistics()["dropped"] == dropped
    assert broker.statistics()["queued_bytes"] == 0


def test_a_subscriber_that_never_reads_is_cut_off_after_write_timeout(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(write_timeout=0.5, max_queued_bytes=100_000)
    slow, publisher = dial(broker), dial(broker)
    small_buffers(slow)
    slow.connect("slow")
    slow.subscribe("t")
    publisher.connect("p")
    while broker.statistics()["dropped"] == 0:
        flood(publisher, "t", 500)
    until(lambda: broker.statistics()["connections"] == 1)
    assert broker.statistics()["closes"] == {"client did not read": 1}
    until(lambda: broker.statistics()["queued_bytes"] == 0)
    until(lambda: broker.call(lambda: len(broker.broker.core.blocked)) == 0)
    assert broker.statistics()["sessions"] == 1


def test_the_bound_over_all_clients_drops_before_memory_runs_out(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(max_queued_bytes=10_000_000, max_total_queued_bytes=300_000, sys_interval=0)
    publisher = dial(broker)
    publisher.connect("p")
    for name in ("one", "two", "three"):
        slow = dial(broker)
        small_buffers(slow)
        slow.connect(name)
        slow.subscribe("t")
    for _ in range(100):
        flood(publisher, "t", 200)
        if broker.statistics()["dropped"]:
            break
    assert broker.statistics()["dropped"] > 0
    assert broker.statistics()["queued_bytes"] <= 300_000


def slow_reader_with_aliases(broker: BrokerThread, dial: Dial) -> RawClient:
    slow = dial(broker)
    small_buffers(slow)
    slow.connect("slow", properties={Property.TOPIC_ALIAS_MAXIMUM: 10})
    slow.subscribe("#")
    return slow


def test_an_alias_whose_first_packet_was_dropped_is_not_used(start_broker: StartBroker, dial: Dial) -> None:
    broker = start_broker(max_queued_bytes=100_000, sys_interval=0)
    slow, publisher = slow_reader_with_aliases(broker, dial), dial(broker)
    publisher.connect("p")
    sent = 0
    while broker.statistics()["dropped"] == 0:
        flood(publisher, "full", 200, start=sent)
        sent += 200
    flood(publisher, "late", 1)
    read_all(broker, slow)
    flood(publisher, "late", 1)
    first = slow.take(Publish)
    assert first.topic == "late", "the client was never told what the alias stands for"


def test_topic_aliases_towards_a_client_stay_within_its_maximum_and_mean_what_they_say(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(sys_interval=0)
    client, publisher = dial(broker), dial(broker)
    client.connect("c", properties={Property.TOPIC_ALIAS_MAXIMUM: 2})
    client.subscribe("#", qos=1)
    publisher.connect("p")
    known: dict[int, str] = {}
    for number in range(12):
        topic = f"t/{number % 4}"
        publisher.publish(topic, b"%d" % number, qos=number % 2)
        message = client.take(Publish, payload=b"%d" % number)
        alias = message.properties.get(Property.TOPIC_ALIAS)
        if alias is not None:
            assert 1 <= alias <= 2
            if message.topic:
                known[alias] = message.topic
        assert (message.topic or known[alias or 0]) == topic
    assert len(known) == 2
