"""A blocking MQTT client that does exactly what a test tells it, and nothing else.

It is the other end for conformance tests: it acknowledges nothing on its own, sends any bytes, legal or not,
and shows every packet in the order it came. Waits have a deadline, so a silent server fails a test instead of
hanging it. What was received and not yet asked for stays in `inbox`.

    with RawClient(port) as client:
        client.connect("sensor-1")
        client.subscribe("a/+", qos=1)
        client.publish("a/b", b"hello", qos=1)
        message = client.expect(Publish, topic="a/b", payload=b"hello")
        client.acknowledge(message)
"""

import socket
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tidegate.errors import TidegateError
from tidegate.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
    encode_packet,
)

TIMEOUT: Final = 5.0
"""Seconds an answer may take: far more than any needs, for the sake of machines under load."""

P = TypeVar("P")


class ConnectionEndedError(TidegateError, ConnectionError):
    """The server closed the connection while a packet was awaited."""


class RawClient:
    """One connection to a server on this machine, by TCP or a unix socket; `version` is 4 (3.1.1) or 5."""

    def __init__(
        self,
        port: int | Path,
        version: int = 5,
        *,
        host: str = "127.0.0.1",
        source: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        self.version = version
        self.timeout = timeout
        self.client_id = ""
        self.inbox: deque[Packet] = deque()
        self.is_ended = False
        self._reader = PacketReader(version)
        self._last_identifier = 0
        if isinstance(port, Path):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(timeout)
            self._socket.connect(str(port))
        else:
            self._socket = socket.create_connection((host, port), timeout, (source, 0))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection without DISCONNECT; a second call does nothing."""
        self._socket.close()

    # --- sending ---

    def send_bytes(self, data: bytes) -> None:
        """Send as it is. A server that has hung up is reported by the next receive, not here."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what the server said before it closed can still be read

    def send(self, packet: Packet) -> None:
        self.send_bytes(encode_packet(packet, self.version))

    def next_identifier(self) -> int:
        """A packet identifier this client has not used yet."""
        self._last_identifier += 1
        return self._last_identifier

    # --- receiving ---

    def receive(self, timeout: float | None = None) -> Packet:
        """The next packet; TimeoutError when none came, ConnectionEndedError when none can come any more."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not self.inbox:
            self._fill(deadline)
        return self.inbox.popleft()

    def expect(self, kind: type[P], timeout: float | None = None, **fields: object) -> P:
        """The next packet, which must be of this kind with these field values."""
        packet = self.receive(timeout)
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet!r}"
        _check_fields(packet, fields)
        return packet

    def take(self, kind: type[P], timeout: float | None = None, **fields: object) -> P:
        """The first packet of this kind with these field values; others before it stay in `inbox`."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        seen = 0
        while True:
            while seen < len(self.inbox):
                packet = self.inbox[seen]
                if isinstance(packet, kind) and _differences(packet, fields) == []:
                    del self.inbox[seen]
                    return packet
                seen += 1
            self._fill(deadline)

    def barrier(self, timeout: float | None = None) -> list[Packet]:
        """A PINGREQ and its answer: gives every packet not yet asked for that came before the PINGRESP.

        A server handles the packets of one connection in order, so what it had to say about earlier ones
        of this client is in the list. What another client caused may still be on its way.
        """
        self.send(Pingreq())
        self.take(Pingresp, timeout)
        packets = list(self.inbox)
        self.inbox.clear()
        return packets

    def expect_nothing(self, timeout: float = 0.2) -> None:
        """Nothing arrives for this long, and the connection stays open."""
        deadline = time.monotonic() + timeout
        try:
            while not self.inbox:
                self._fill(deadline)
        except TimeoutError:
            return
        raise AssertionError(f"expected silence, got {list(self.inbox)!r}")

    def expect_closed(self, timeout: float | None = None) -> Disconnect | None:
        """Wait until the server closes; gives the DISCONNECT it sent first, if it did.

        Other packets that came before stay in `inbox`.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        try:
            while True:
                self._fill(deadline)
        except ConnectionEndedError:
            pass
        except TimeoutError:
            raise AssertionError(f"the server kept the connection open, inbox {list(self.inbox)!r}") from None
        for packet in self.inbox:
            if isinstance(packet, Disconnect):
                self.inbox.remove(packet)
                return packet
        return None

    def receive_bytes(self, timeout: float | None = None) -> bytes:
        """What comes next, undecoded (it is lost for `receive`); empty at the end of the connection."""
        self._socket.settimeout(self.timeout if timeout is None else timeout)
        try:
            return self._socket.recv(65536)
        except ConnectionResetError:
            return b""

    def _fill(self, deadline: float) -> None:
        """Read once into the inbox."""
        if self.is_ended:
            raise ConnectionEndedError("the server closed the connection")
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no packet in time, inbox {list(self.inbox)!r}")
        data = self.receive_bytes(left)
        if not data:
            self.is_ended = True
            raise ConnectionEndedError("the server closed the connection")
        self.inbox.extend(self._reader.feed(data))
        self._reader.check()

    # --- exchanges ---

    def connect(
        self,
        client_id: str = "",
        *,
        clean_start: bool = True,
        keep_alive: int = 60,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> Connack:
        """Send CONNECT and give the CONNACK, whatever it says."""
        self.client_id = client_id
        self.send(
            Connect(
                client_id=client_id,
                clean_start=clean_start,
                keep_alive=keep_alive,
                username=username,
                password=password,
                will=will,
                properties=properties or {},
                protocol_level=self.version,
            )
        )
        return self.expect(Connack)

    def subscribe(
        self,
        topic_filter: str,
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties | None = None,
    ) -> Suback:
        subscription = Subscription(
            topic_filter=topic_filter,
            qos=qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
        )
        return self.subscribe_all([subscription], properties)

    def subscribe_all(
        self, subscriptions: Sequence[Subscription], properties: Properties | None = None
    ) -> Suback:
        """One SUBSCRIBE with several filters; a retained message may come before its SUBACK and is kept."""
        identifier = self.next_identifier()
        self.send(
            Subscribe(
                packet_identifier=identifier, subscriptions=list(subscriptions), properties=properties or {}
            )
        )
        return self.take(Suback, packet_identifier=identifier)

    def unsubscribe(self, *topic_filters: str) -> Unsuback:
        identifier = self.next_identifier()
        self.send(Unsubscribe(packet_identifier=identifier, topic_filters=list(topic_filters)))
        return self.take(Unsuback, packet_identifier=identifier)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        packet_identifier: int | None = None,
        properties: Properties | None = None,
    ) -> Puback | Pubrec | Pubcomp | None:
        """Publish and finish the handshake; gives its last packet (a PUBREC if that refused the message)."""
        if qos and packet_identifier is None:
            packet_identifier = self.next_identifier()
        self.send(
            Publish(
                topic=topic,
                payload=payload,
                qos=qos,
                retain=retain,
                dup=dup,
                packet_identifier=packet_identifier,
                properties=properties or {},
            )
        )
        if packet_identifier is None:
            return None
        if qos == 1:
            return self.take(Puback, packet_identifier=packet_identifier)
        received = self.take(Pubrec, packet_identifier=packet_identifier)
        if received.reason_code >= 0x80:
            return received
        self.send(Pubrel(packet_identifier=packet_identifier))
        return self.take(Pubcomp, packet_identifier=packet_identifier)

    def acknowledge(self, message: Publish) -> None:
        """Finish the receiver's side of the handshake of a message from the server, whatever its QoS."""
        identifier = message.packet_identifier
        if identifier is None:
            return
        if message.qos == 1:
            self.send(Puback(packet_identifier=identifier))
            return
        self.send(Pubrec(packet_identifier=identifier))
        self.take(Pubrel, packet_identifier=identifier)
        self.send(Pubcomp(packet_identifier=identifier))

    def disconnect(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        """Send DISCONNECT and wait until the server has closed, so that it has seen it."""
        self.send(Disconnect(reason_code=reason_code, properties=properties or {}))
        self.expect_closed()
        self.close()


def _differences(packet: object, fields: dict[str, Any]) -> list[str]:
    return [name for name, value in fields.items() if getattr(packet, name) != value]


def _check_fields(packet: object, fields: dict[str, Any]) -> None:
    wrong = _differences(packet, fields)
    assert not wrong, f"{', '.join(wrong)} differ: expected {fields!r}, got {packet!r}"
