"""Publishers that never stop: their own PINGREQ gets through, every message is accounted for, memory is bounded."""

import threading
import time

import pytest

from tests.integration.broker.conftest import Dial, StartBroker, Until
from tests.integration.broker.gate_traffic import PINGREQ, Flooder, Reader, always, known, publish
from tidegate.broker.holding import SWEEP_ROOM
from tidegate.mqtt import Puback
from tidegate.testing import BrokerThread

KEEP_ALIVE = 2
CHUNK_BYTES = 256 * 1_024


def held_bytes(broker: BrokerThread) -> list[int]:
    """What is kept of each publisher: waiting for its hold to end, for its turn, or for the rest of a packet."""

    def look() -> list[int]:
        return [
            conn.held_bytes + conn.session.late_bytes + len(conn.more or b"")
            for conn in broker.broker.core.connections
        ]

    return broker.call(look)


@pytest.mark.parametrize("version", [4, 5])
def test_a_flooder_gets_its_pingresp_in_time_and_what_is_missing_was_counted(
    start_broker: StartBroker, dial: Dial, until: Until, version: int
) -> None:
    broker = start_broker(flow=always())
    known(broker, flooder=20.0)
    subscriber = dial(broker, version)
    subscriber.connect("reader")
    subscriber.subscribe("flood")
    received = Reader(subscriber)
    received.start()
    client = dial(broker, version)
    client.connect("flooder", keep_alive=KEEP_ALIVE)
    flooder = Flooder(client, 5.0)
    flooder.start()
    flooder.join(30.0)
    assert not flooder.is_alive()
    until(lambda: len(flooder.answers()) == len(flooder.pings), 10.0)
    assert max(flooder.answers()) < KEEP_ALIVE
    assert len(flooder.pings) >= 3, "else there was hardly anything to answer"
    assert not flooder.reader.is_ended

    def is_settled() -> bool:
        statistics = broker.statistics()
        delivered = len(received.numbers())
        return bool(delivered + statistics["backoff_shed"] == flooder.published)

    until(is_settled, 60.0)
    statistics = broker.statistics()
    assert statistics["backoff_shed"] > 0
    assert statistics["publish_received"] == flooder.published
    assert statistics["dropped"] == statistics["backoff_shed"]
    numbers = received.numbers()
    assert numbers == sorted(set(numbers)), "in order, none twice"


def test_qos_1_in_a_swept_stream_is_kept_and_acknowledged(
    start_broker: StartBroker, dial: Dial, until: Until
) -> None:
    broker = start_broker(flow=always(d_max=1.0))
    known(broker, p=2_000.0)
    subscriber = dial(broker)
    subscriber.connect("reader")
    subscriber.subscribe("kept", qos=1)
    received = Reader(subscriber)
    received.start()
    client = dial(broker)
    client.connect("p", keep_alive=KEEP_ALIVE)
    answers = Reader(client)
    answers.start()
    count = 300

    def send() -> None:
        filler = b"".join(publish(number, topic="filler", size=1_000) for number in range(100))
        for number in range(count):
            client.send_bytes(filler + publish(number, 1, "kept"))
        client.send_bytes(PINGREQ)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(60.0)
    assert not sender.is_alive()
    until(lambda: len(answers.times(Puback)) == count, 60.0)
    until(lambda: len(received.numbers()) == count)
    assert received.numbers() == list(range(count))
    statistics = broker.statistics()
    assert statistics["backoff_shed"] > 0, "else nothing was swept and this test says nothing"


def test_a_sweep_ends_with_the_backlog(start_broker: StartBroker, dial: Dial, until: Until) -> None:
    """Once the flood is over, a message that has to wait for a moment is not dropped."""
    broker = start_broker(flow=always(d_max=0.5))
    known(broker, p=20.0)
    client = dial(broker)
    client.connect("p", keep_alive=KEEP_ALIVE)
    flooder = Flooder(client, 2.0)
    flooder.start()
    flooder.join(30.0)
    until(lambda: broker.statistics()["backoff_shed"] > 0 and not max(held_bytes(broker)), 60.0)
    until(lambda: broker.statistics()["backoff_held"] == 0, 10.0)
    shed = broker.statistics()["backoff_shed"]
    assert broker.statistics()["publish_received"] == flooder.published
    subscriber = dial(broker)
    subscriber.connect("reader")
    subscriber.subscribe("polite")
    received = Reader(subscriber)
    received.start()
    for start in range(0, 500, 50):
        client.send_bytes(b"".join(publish(number, topic="polite") for number in range(start, start + 50)))
        time.sleep(0.02)
    until(lambda: len(received.numbers()) >= 500 or broker.statistics()["backoff_shed"] > shed, 30.0)
    assert broker.statistics()["backoff_shed"] == shed
    assert received.numbers() == list(range(500))


@pytest.mark.parametrize("qos", [0, 1])
def test_a_hundred_attackers_that_never_stop_fill_no_memory(
    start_broker: StartBroker, dial: Dial, qos: int
) -> None:
    broker = start_broker(flow=always())
    most = 131_072
    names = [f"attacker{number}" for number in range(100)]
    known(broker, **dict.fromkeys(names, 1.0))
    data = b"".join(publish(number, qos, "flood", 1_000, 4) for number in range(64))
    sockets = []
    for name in names:
        client = dial(broker, 4)
        client.connect(name, keep_alive=KEEP_ALIVE)
        client._socket.setblocking(False)
        sockets.append(client._socket)
    before = broker.statistics()["memory_bytes"]
    highest = 0
    end = time.monotonic() + 4.0
    left = [b""] * len(sockets)
    while time.monotonic() < end:
        for at, sock in enumerate(sockets):
            left[at] = left[at] or data
            try:
                left[at] = left[at][sock.send(left[at]) :]
            except BlockingIOError:
                continue
        highest = max(highest, *held_bytes(broker))
    # A chunk may take it over each bound, and one may wait for its turn.
    bound = most + SWEEP_ROOM + 2 * CHUNK_BYTES
    assert most < highest <= bound
    statistics = broker.statistics()
    assert statistics["connections"] == 100
    assert statistics["backoff_held"] > 50
    assert statistics["memory_bytes"] - before < 100 * bound + 64_000_000
