"""Words that the tests of MQTT 3.1.1 share: what they ask of fixtures and what they expect of a server."""

from typing import Any, Protocol

from tidegate.mqtt import Connect, Publish, encode_packet
from tidegate.testing.raw import RawClient


class Broker(Protocol):
    """Where a broker listens."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class BrokerWith(Protocol):
    """Starts a broker; arguments are fields of `Limits` and `Features`."""

    def __call__(self, **settings: Any) -> Broker: ...


class Open(Protocol):
    """Opens a network connection and sends nothing on it."""

    def __call__(self, *, to: Broker | None = None) -> RawClient: ...


class Join(Protocol):
    """Connects with MQTT 3.1.1 under this test's own form of the name; the server must accept."""

    def __call__(
        self, name: str = "client", *, to: Broker | None = None, session_present: bool = False, **fields: Any
    ) -> RawClient: ...


def expect_dropped(client: RawClient) -> None:
    """The server closes and says nothing: 3.1.1 gives it no DISCONNECT to send."""
    assert client.expect_closed() is None
    assert list(client.inbox) == []


def everything_until_closed(client: RawClient) -> bytes:
    """The bytes the server sends before it closes."""
    received = b""
    while data := client.receive_bytes():
        received += data
    return received


def deliveries(client: RawClient) -> list[Publish]:
    """The messages that the server has sent up to now; packets of other kinds must not be among them.

    Call it when the publisher has its acknowledgement, or after `settle` for QoS 0.
    """
    packets = client.barrier()
    messages = [packet for packet in packets if isinstance(packet, Publish)]
    assert messages == packets
    return messages


def payloads(client: RawClient) -> list[bytes]:
    return [message.payload for message in deliveries(client)]


def settle(client: RawClient) -> None:
    """The server has handled all that this client sent, and has said nothing else about it."""
    assert client.barrier() == []


def vanish(client: RawClient) -> None:
    """Close the network connection without DISCONNECT, as a failing network would."""
    client.close()


def connect_bytes(client_id: str, **fields: Any) -> bytes:
    """A correct CONNECT of 3.1.1, to be sent in one piece with what follows it."""
    return encode_packet(Connect(client_id=client_id, protocol_level=4, **fields), 4)
