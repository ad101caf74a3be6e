"""Steps that many statements share: how a server refuses, and how a test knows that nothing came.

To show that a message does not arrive, a marker is published after everything that could have caused it: a
server handles what one client sends in order, so what is not there with the marker was not on its way.
"""

import time

from tests.conformance.v5.wire import subscribe
from tidegate.mqtt import Connack, Disconnect, Publish, ReasonCode, Suback
from tidegate.testing.raw import RawClient

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL_ERROR = ReasonCode.PROTOCOL_ERROR


def expect_disconnect(client: RawClient, *reason_codes: int) -> Disconnect:
    """The server says why with one of these codes, then closes (section 4.13)."""
    disconnect = client.expect_closed()
    assert disconnect is not None, "the server closed without a DISCONNECT"
    assert disconnect.reason_code in reason_codes, disconnect
    return disconnect


def expect_refusal(client: RawClient, *reason_codes: int) -> Connack | None:
    """The server closes without accepting, at most after one CONNACK with one of these codes."""
    disconnect = client.expect_closed()
    assert disconnect is None, "no DISCONNECT before a successful CONNACK [MQTT5-3.14.0-1]"
    if not client.inbox:
        return None
    connack = client.expect(Connack)
    assert connack.reason_code in reason_codes, connack
    assert not connack.session_present
    assert not client.inbox
    return connack


def expect_filter_refused(client: RawClient, topic_filter: bytes | str) -> None:
    """A bad filter may be refused in SUBACK or with the connection."""
    client.send_bytes(subscribe((topic_filter, 0), identifier=1))
    packet = client.receive()
    if isinstance(packet, Suback):
        assert packet.reason_codes == [ReasonCode.TOPIC_FILTER_INVALID]
    else:
        client.inbox.appendleft(packet)
        expect_disconnect(client, MALFORMED, PROTOCOL_ERROR, ReasonCode.TOPIC_FILTER_INVALID)


def messages_besides_marker(
    subscriber: RawClient, topic: str, publisher: RawClient | None = None
) -> list[Publish]:
    """Publish a marker to `topic`, which the subscriber must get; gives every other message that came."""
    (publisher or subscriber).publish(topic, b"marker")
    marker = subscriber.take(Publish, topic=topic, payload=b"marker")
    assert marker.qos == 0
    return [packet for packet in subscriber.barrier() if isinstance(packet, Publish)]


def collect(client: RawClient, count: int, *, acknowledge: bool = True) -> list[Publish]:
    """The next `count` messages in order, acknowledged unless told otherwise."""
    messages: list[Publish] = []
    for _ in range(count):
        message = client.take(Publish)
        if acknowledge:
            client.acknowledge(message)
        messages.append(message)
    return messages


def payloads(packets: list[Publish]) -> list[bytes]:
    return [packet.payload for packet in packets]


def pass_time(seconds: float) -> None:
    """Let an interval of the protocol run out: the passing of time is what is tested, nothing is awaited."""
    time.sleep(seconds)
