"""What the tests here share: raw clients with their own pace, and waits with a deadline."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.soak.broker import BrokerProcess
from tidegate.load import packets
from tidegate.mqtt import Connack, Properties, Property
from tidegate.testing.raw import RawClient


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
    """Poll a condition of another process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def wait_metric(
    broker: BrokerProcess, name: str, is_true: Callable[[float], bool], seconds: float = 15.0
) -> None:
    wait_until(lambda: is_true(broker.metrics()[name]), f"{name} of the broker", seconds)


def joined(broker: BrokerProcess, client_id: str, **options: object) -> RawClient:
    """A connected MQTT 5 client; `options` are those of `RawClient.connect`."""
    client = RawClient(broker.port, timeout=10)
    connack = client.connect(client_id, **options)  # type: ignore[arg-type]
    if connack.reason_code:
        client.close()
        raise AssertionError(f"{client_id} was refused: {connack}")
    return client


def knock(broker: BrokerProcess, client_id: str, properties: Properties | None = None) -> Connack:
    """What a client that comes now is told; it leaves again."""
    with RawClient(broker.port, timeout=10) as client:
        return client.connect(client_id, properties=properties, clean_start=properties is None)


def no_more_than(receive_maximum: int) -> Properties:
    return {Property.RECEIVE_MAXIMUM: receive_maximum}


@contextmanager
def never_reading(port: int, client_id: str, topic_filter: str, qos: int) -> Iterator[socket.socket]:
    """A 3.1.1 subscriber with a small receive buffer that reads its SUBACK and nothing more."""
    with socket.socket() as client:
        client.settimeout(10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        client.connect(("127.0.0.1", port))
        client.sendall(packets.connect(client_id, protocol=4))
        assert client.recv(4) == b"\x20\x02\x00\x00"
        client.sendall(packets.subscribe(1, topic_filter, qos=qos, protocol=4))
        assert client.recv(5) == b"\x90\x03\x00\x01" + bytes((qos,))
        yield client
