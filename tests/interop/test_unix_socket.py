"""A unix socket is a listener like any other: a raw client, and libraries that can dial one."""

import socket
import stat
from pathlib import Path

import pytest

from tests.interop.conftest import Harbour, Join
from tests.interop.matrix import every_version
from tidegate.mqtt import (
    Connack,
    Connect,
    Packet,
    PacketReader,
    Publish,
    Subscribe,
    Subscription,
    encode_packet,
)
from tidegate.testing.raw import RawClient


@pytest.mark.parametrize("kind", ["paho", "aiomqtt", "mqttjs"])
@every_version
def test_messages_cross_between_a_unix_socket_and_tcp(
    join: Join, harbour: Harbour, topic: str, kind: str, version: int
) -> None:
    peer = join(kind, version, "unix")
    peer.subscribe(f"{topic}/down", 2)
    with RawClient(harbour.port, timeout=20.0) as reference:
        reference.connect()
        reference.subscribe(f"{topic}/up", qos=2)
        for qos in (0, 1, 2):
            peer.publish(f"{topic}/up", b"up", qos)
            message = reference.take(Publish)
            reference.acknowledge(message)
            assert (message.payload, message.qos) == (b"up", qos)
            reference.publish(f"{topic}/down", b"down", qos)
            received = peer.inbox.take()
            assert (received.payload, received.qos) == (b"down", qos)


def test_a_raw_unix_socket_speaks_mqtt(harbour: Harbour, topic: str) -> None:
    reader = PacketReader(5)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20.0)
        client.connect(harbour.addresses["unix"].path)
        subscribe = Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=topic, qos=0)])
        for packet in (
            Connect(client_id="", clean_start=True, keep_alive=60, protocol_level=5),
            subscribe,
            Publish(topic=topic, payload=b"hello", qos=0),
        ):
            client.sendall(encode_packet(packet, 5))
        packets: list[Packet] = []
        while not packets or not isinstance(packets[-1], Publish):
            data = client.recv(65_536)
            assert data, "the broker closed the connection"
            packets.extend(reader.feed(data))
            reader.check()
    assert isinstance(packets[-1], Publish)
    assert packets[-1].payload == b"hello"
    assert isinstance(packets[0], Connack)
    assert packets[0].reason_code == 0


def test_only_owner_and_group_may_connect(harbour: Harbour) -> None:
    mode = Path(harbour.addresses["unix"].path).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660
