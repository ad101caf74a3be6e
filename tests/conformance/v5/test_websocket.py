"""MQTT 5 chapter 6: WebSocket as network transport."""

from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

from tests.conformance.conftest import Broker, BrokerWith
from tidegate.broker import Listener
from tidegate.mqtt import (
    Connack,
    Connect,
    Packet,
    PacketReader,
    Pingreq,
    Pingresp,
    Publish,
    encode_packet,
)
from tidegate.net.websocket import WebSocketOptions


@pytest.fixture
def server(broker_with: BrokerWith) -> Broker:
    return broker_with(listeners=[Listener(port=0, websocket=WebSocketOptions())])


@pytest.fixture
def link(server: Broker) -> Iterator[ClientConnection]:
    address = f"ws://{server.host}:{server.port}/mqtt"
    with connect_websocket(address, subprotocols=[Subprotocol("mqtt")], proxy=None) as connection:
        yield connection


def receive(link: ClientConnection, reader: PacketReader, count: int) -> list[Packet]:
    packets: list[Packet] = []
    while len(packets) < count:
        data = link.recv(timeout=5)
        assert isinstance(data, bytes), "MQTT is sent in binary frames"
        packets += reader.feed(data)
    return packets


def test_MQTT_6_0_0_1_the_server_sends_binary_frames_and_closes_on_a_text_frame(
    link: ClientConnection,
) -> None:
    link.send(encode_packet(Connect(client_id="web"), 5))
    assert isinstance(receive(link, PacketReader(5), 1)[0], Connack)
    link.send("text")
    with pytest.raises(ConnectionClosed):
        receive(link, PacketReader(5), 2)  # a DISCONNECT may come first


def test_MQTT_6_0_0_2_packets_and_frames_need_not_be_aligned(link: ClientConnection) -> None:
    reader = PacketReader(5)
    connect = encode_packet(Connect(client_id="web"), 5)
    ping = encode_packet(Pingreq(), 5)
    link.send(connect[:5])
    link.send(connect[5:-1])
    link.send(connect[-1:] + ping + ping + ping[:1])
    link.send(ping[1:] + encode_packet(Publish(topic="t"), 5) + ping)
    packets = receive(link, reader, 5)
    assert isinstance(packets[0], Connack)
    assert packets[1:] == [Pingresp()] * 4


def ask_without_mqtt(address: str) -> object:
    with connect_websocket(address, subprotocols=[Subprotocol("chat")], proxy=None) as connection:
        connection.send(encode_packet(Connect(client_id="web"), 5))
        return connection.recv(timeout=5)


def test_MQTT_6_0_0_3_a_client_that_does_not_offer_mqtt_gets_no_service(server: Broker) -> None:
    address = f"ws://{server.host}:{server.port}/mqtt"
    with pytest.raises(WebSocketException):
        ask_without_mqtt(address)


def test_MQTT_6_0_0_4_the_server_selects_the_subprotocol_mqtt(server: Broker) -> None:
    address = f"ws://{server.host}:{server.port}/mqtt"
    offered = [Subprotocol("chat"), Subprotocol("mqtt")]
    with connect_websocket(address, subprotocols=offered, proxy=None) as connection:
        assert connection.subprotocol == "mqtt"
