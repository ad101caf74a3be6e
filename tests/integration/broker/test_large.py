"""Large messages, long answers and bursts: all of it arrives, and nobody else waits for it."""

import asyncio
import threading
import time

import pytest

from tests.integration.broker.conftest import Dial, StartBroker
from tidegate.mqtt import Pingreq, Pingresp, Puback, Publish, encode_packet
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

PATIENCE = 0.5
"""Seconds the loop may be held or a neighbour may wait for its PINGRESP: generous, for the sake of busy machines."""


class Neighbour(threading.Thread):
    """Asks again and again until told to stop; notes the longest wait for an answer."""

    def __init__(self, client: RawClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.worst = 0.0
        self.count = 0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            started = time.monotonic()
            self.client.send(Pingreq())
            self.client.expect(Pingresp)
            self.worst = max(self.worst, time.monotonic() - started)
            self.count += 1

    def finish(self) -> float:
        self._done.set()
        self.join(10)
        assert self.count > 0
        return self.worst


class Pulse:
    """A callback of the broker's loop that calls itself every millisecond and notes the longest gap."""

    def __init__(self, broker: BrokerThread) -> None:
        self.worst = 0.0
        self._is_stopped = False
        self._last = 0.0
        broker.call(self._beat)

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._last:
            self.worst = max(self.worst, now - self._last)
        self._last = now
        if not self._is_stopped:
            loop.call_later(0.001, self._beat)

    def stop(self) -> float:
        self._is_stopped = True
        return self.worst


def test_messages_of_a_mebibyte_arrive_whole_also_when_dribbled(
    start_broker: StartBroker, dial: Dial
) -> None:
    broker = start_broker(max_packet_size=1_100_000)
    subscriber, publisher = dial(broker), dial(broker, 4)
    subscriber.connect("s")
    publisher.connect("p")
    subscriber.subscribe("big", qos=1)
    for number in range(3):
        payload = bytes((number, 255 - number)) * 524_288
        data = encode_packet(Publish(topic="big", payload=payload, qos=1, packet_identifier=number + 1), 4)
        step = (1_448, 65_536, 300_000)[number]
        for start in range(0, len(data), step):
            publisher.send_bytes(data[start : start + step])
        publisher.expect(Puback)
        message = subscriber.take(Publish)
        assert message.payload == payload
        subscriber.acknowledge(message)


@pytest.mark.serial
@pytest.mark.parametrize("kind", ["PINGREQ", "PUBLISH"])
def test_a_burst_of_tiny_packets_does_not_hold_the_loop(
    start_broker: StartBroker, dial: Dial, kind: str
) -> None:
    """Measured on the loop: clients in threads of this process would measure the interpreter's lock."""
    broker = start_broker()
    publisher = dial(broker, 4)
    publisher.connect("p")
    packet = b"\xc0\x00"
    if kind == "PUBLISH":
        packet = encode_packet(Publish(topic="t/q", payload=b"x", qos=1, packet_identifier=1), 4)
    count = 1_000_000 // len(packet)
    answers = count * (2 if kind == "PINGREQ" else 4)
    pulse = Pulse(broker)
    reader = threading.Thread(target=_read_bytes, args=(publisher, answers), daemon=True)
    reader.start()
    publisher.send_bytes(packet * count)
    reader.join(60)
    assert not reader.is_alive(), "every one was answered"
    assert pulse.stop() < PATIENCE


def _read_bytes(client: RawClient, count: int) -> None:
    while count > 0:
        count -= len(client.receive_bytes(20.0))


def test_a_wildcard_over_many_retained_messages_is_answered_completely_while_others_are_served(
    start_broker: StartBroker, dial: Dial
) -> None:
    count = 50_000
    broker = start_broker(sys_interval=0)
    neighbour, publisher, subscriber = dial(broker), dial(broker, 4), dial(broker, 4)
    neighbour.connect("n")
    publisher.connect("p")
    subscriber.connect("s")
    for first in range(0, count, 5_000):
        publisher.send_bytes(
            b"".join(
                encode_packet(Publish(topic=f"r/{i % 100}/{i}", payload=b"%d" % i, retain=True), 4)
                for i in range(first, first + 5_000)
            )
        )
        publisher.barrier()
    assert broker.statistics()["retained"] == count
    asking = Neighbour(neighbour)
    asking.start()
    subscriber.subscribe("r/#", qos=1)
    deadline = time.monotonic() + 40
    seen: set[bytes] = set()
    total = 0
    while total < count:
        while subscriber.inbox:
            packet = subscriber.inbox.popleft()
            if isinstance(packet, Publish):
                assert packet.retain
                seen.add(packet.payload)
                total += 1
        if total < count:
            subscriber._fill(deadline)
    assert (total, len(seen)) == (count, count)
    assert subscriber.barrier() == []
    assert asking.finish() < PATIENCE
