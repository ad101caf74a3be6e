"""Publishers and readers on sockets for the tests of the gate: threads that count what they send and get."""

import threading
import time
from typing import Any

from tidegate.broker.flow_settings import Backoff, FlowSettings
from tidegate.flow.backoff import Prior
from tidegate.mqtt import Packet, PacketReader, Pingresp, Publish, encode_packet
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

PINGREQ = b"\xc0\x00"


def always(**backoff: Any) -> FlowSettings:
    """Who is too fast is held, whatever the load."""
    return FlowSettings(backoff=Backoff(**({"always": True, "floor_rate": 0} | backoff)))


def known(broker: BrokerThread, **rates: float) -> None:
    """As if a policy snapshot had told these clients' rates."""
    priors = {name: Prior(rate=rate, dispersion=0.05) for name, rate in rates.items()}

    def tell() -> None:
        gate = broker.broker.core.gate
        assert gate is not None
        gate.priors = priors

    broker.call(tell)


def publish(
    number: int, qos: int = 0, topic: str = "t", size: int = 0, version: int = 5, **fields: Any
) -> bytes:
    """A PUBLISH whose payload begins with its number."""
    packet = Publish(
        topic=topic,
        payload=b"%d " % number + bytes(size),
        qos=qos,
        packet_identifier=number % 65_535 + 1 if qos else None,
        **fields,
    )
    return encode_packet(packet, version)


class Reader(threading.Thread):
    """Reads a client's connection until it ends; keeps packets with the time they came."""

    def __init__(self, client: RawClient) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._reader = PacketReader(client.version)
        self.packets: list[tuple[float, Packet]] = []
        self.is_ended = False

    def run(self) -> None:
        while True:
            try:
                data = self._client.receive_bytes(30.0)
            except OSError:
                break
            if not data:
                break
            now = time.monotonic()
            self.packets.extend((now, packet) for packet in self._reader.feed(data))
        self.is_ended = True

    def times(self, kind: type[Any]) -> list[float]:
        return [when for when, packet in list(self.packets) if isinstance(packet, kind)]

    def numbers(self) -> list[int]:
        return [int(p.payload.split(b" ")[0]) for _, p in list(self.packets) if isinstance(p, Publish)]


class Flooder(threading.Thread):
    """Sends as fast as its socket takes it for some seconds, and a PINGREQ now and then."""

    def __init__(
        self, client: RawClient, seconds: float, *, qos: int = 0, size: int = 100, every: float = 0.4
    ) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._seconds = seconds
        self._qos = qos
        self._size = size
        self._every = every
        self.published = 0
        self.pings: list[float] = []  # when each was handed to the socket
        self.reader = Reader(client)

    def run(self) -> None:
        self.reader.start()
        end = time.monotonic() + self._seconds
        due = 0.0
        while (now := time.monotonic()) < end:
            version = self._client.version
            count = 200
            data = b"".join(
                publish(self.published + i, self._qos, "flood", self._size, version) for i in range(count)
            )
            self.published += count
            if now < due:
                self._client.send_bytes(data)
                continue
            self._client.send_bytes(data + PINGREQ)
            self.pings.append(time.monotonic())
            due = self.pings[-1] + self._every

    def answers(self) -> list[float]:
        """Seconds that each PINGRESP took."""
        return [came - sent for sent, came in zip(self.pings, self.reader.times(Pingresp), strict=False)]
