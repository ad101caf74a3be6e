"""Chapter 6 of MQTT 3.1.1: WebSocket as a transport, with another project's WebSocket client."""

from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.conformance.v3 import wire
from tests.conformance.v3.support import BrokerWith
from tidegate.broker.listener import Listener
from tidegate.net.websocket import WebSocketOptions

CONNACK = b"\x20\x02\x00\x00"


@pytest.fixture
def websocket(broker_of: BrokerWith) -> Iterator[ClientConnection]:
    """An open WebSocket to a broker; no CONNECT has been sent."""
    broker = broker_of(listeners=[Listener(port=0, websocket=WebSocketOptions())])
    with connect(f"ws://127.0.0.1:{broker.port}/mqtt", subprotocols=["mqtt"]) as websocket:  # type: ignore[list-item]
        yield websocket


def receive(websocket: ClientConnection, size_bytes: int) -> bytes:
    """So many bytes of binary frames, however they are framed."""
    received = b""
    while len(received) < size_bytes:
        frame = websocket.recv(timeout=5)
        assert isinstance(frame, bytes)
        received += frame
    assert len(received) == size_bytes
    return received


def test_MQTT_6_0_0_1_the_server_sends_binary_frames(websocket: ClientConnection) -> None:
    websocket.send(wire.connect("websocket"))
    assert receive(websocket, 4) == CONNACK


def test_MQTT_6_0_0_1_a_text_frame_closes_the_connection(websocket: ClientConnection) -> None:
    websocket.send(wire.connect("websocket"))
    assert receive(websocket, 4) == CONNACK
    websocket.send("\x30\x05\x00\x01a01")
    with pytest.raises(ConnectionClosed):
        websocket.recv(timeout=5)


def test_MQTT_6_0_0_1_a_text_frame_in_place_of_CONNECT_closes_the_connection(
    websocket: ClientConnection,
) -> None:
    websocket.send(wire.connect("websocket").decode())
    with pytest.raises(ConnectionClosed):
        websocket.recv(timeout=5)


def test_MQTT_6_0_0_2_packets_need_not_be_aligned_with_frames(websocket: ClientConnection) -> None:
    message = wire.publish("a/b", b"payload")
    stream = wire.connect("websocket") + wire.subscribe(("a/b", 0)) + message * 3 + b"\xc0\x00"
    for start in range(0, len(stream), 7):
        websocket.send(stream[start : start + 7])
    answer = receive(websocket, 4 + 5 + 3 * len(message) + 2)
    assert sorted(wire.split(answer)) == sorted(
        wire.split(CONNACK + b"\x90\x03\0\x01\0" + message * 3 + b"\xd0\0")
    )


def test_MQTT_6_0_0_2_one_frame_may_hold_many_packets(websocket: ClientConnection) -> None:
    websocket.send(wire.connect("websocket") + b"\xc0\x00" * 50)
    assert receive(websocket, 4 + 100) == CONNACK + b"\xd0\x00" * 50


def test_MQTT_6_0_0_2_a_fragmented_message_may_hold_packets(websocket: ClientConnection) -> None:
    websocket.send([wire.connect("websocket")[:5], wire.connect("websocket")[5:] + b"\xc0", b"\x00"])
    assert receive(websocket, 6) == CONNACK + b"\xd0\x00"


def test_MQTT_6_0_0_4_the_server_selects_the_subprotocol_mqtt(broker_of: BrokerWith) -> None:
    broker = broker_of(listeners=[Listener(port=0, websocket=WebSocketOptions())])
    offered = ["chat", "mqtt", "mqttv3.1"]
    with connect(f"ws://127.0.0.1:{broker.port}/mqtt", subprotocols=offered) as websocket:  # type: ignore[arg-type]
        assert websocket.subprotocol == "mqtt"
        websocket.send(wire.connect("websocket"))
        assert receive(websocket, 4) == CONNACK
