"""paho-mqtt, with its own network thread."""

import os
import socket
import threading
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from tests.interop.peers.base import DEADLINE, Inbox, Message, Options, Properties

# Our field: paho's name for the property.
NAMES = {
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "content_type": "ContentType",
    "payload_format_indicator": "PayloadFormatIndicator",
    "message_expiry_interval": "MessageExpiryInterval",
    "topic_alias": "TopicAlias",
}


def to_paho(properties: Properties | None) -> PahoProperties | None:
    if properties is None:
        return None
    made = PahoProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for ours, theirs in NAMES.items():
        value = getattr(properties, ours)
        if value is not None:
            setattr(made, theirs, value)
    if properties.user:
        made.UserProperty = list(properties.user)
    return made


def from_paho(properties: PahoProperties | None) -> Properties:
    found: dict[str, Any] = {
        ours: getattr(properties, theirs) for ours, theirs in NAMES.items() if hasattr(properties, theirs)
    }
    return Properties(user=tuple(map(tuple, getattr(properties, "UserProperty", ()))), **found)


def connect_properties(options: Options) -> PahoProperties:
    made = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    made.SessionExpiryInterval = options.session_expiry
    if options.topic_alias_maximum:
        made.TopicAliasMaximum = options.topic_alias_maximum
    return made


def drop_socket(sock: Any) -> None:
    """End a connection under a library that must not notice in time to say DISCONNECT."""
    with socket.socket(fileno=os.dup(sock.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


class PahoPeer:
    """Callbacks of the network thread end the waits of the test's thread."""

    def __init__(self, options: Options) -> None:
        self.inbox = Inbox()
        self._options = options
        self._connected = threading.Event()
        self._disconnected = threading.Event()
        self._refused: object = None
        self._session_present = False
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()
        address = options.address
        self._is_v5 = options.version == 5
        self._client = client = Client(
            CallbackAPIVersion.VERSION2,
            options.client_id,
            clean_session=None if self._is_v5 else options.clean_start,
            protocol=MQTTProtocolVersion(options.version),
            transport="websockets" if address.is_websocket else "unix" if address.path else "tcp",
            reconnect_on_failure=False,
        )
        if address.is_tls:
            client.tls_set_context(address.tls_context())
        if options.will is not None:
            will = options.will
            client.will_set(will.topic, will.payload, will.qos, will.retain)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_subscribe = self._on_answer
        client.on_unsubscribe = self._on_answer

    # -- on the network thread ------------------------------------------------------------------------------

    def _on_connect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._session_present = flags.session_present
        self._refused = reason if reason.is_failure else None
        self._connected.set()

    def _on_disconnect(self, *ignored: object) -> None:
        self._disconnected.set()

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self.inbox.put(
            Message(
                topic=message.topic,
                payload=bytes(message.payload),
                qos=message.qos,
                retain=message.retain,
                properties=from_paho(message.properties),
            )
        )

    def _on_answer(self, client: Client, data: Any, identifier: int, reasons: Any, properties: Any) -> None:
        with self._answered:
            self._answers[identifier] = reasons
            self._answered.notify_all()

    # -- on the test's thread -------------------------------------------------------------------------------

    def connect(self) -> bool:
        address = self._options.address
        more: dict[str, Any] = {}
        if self._is_v5:
            more = {"clean_start": self._options.clean_start, "properties": connect_properties(self._options)}
        self._client.connect(address.path or address.host, address.port or 1883, **more)
        self._client.loop_start()
        assert self._connected.wait(DEADLINE), "no CONNACK in time"
        assert self._refused is None, f"refused: {self._refused}"
        return self._session_present

    def _wait_answer(self, identifier: int | None) -> Any:
        assert identifier is not None, "not connected"
        with self._answered:
            assert self._answered.wait_for(lambda: identifier in self._answers, DEADLINE), "no answer in time"
            return self._answers.pop(identifier)

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        _, identifier = self._client.subscribe(topic_filter, qos)
        return int(self._wait_answer(identifier)[0].value)

    def unsubscribe(self, topic_filter: str) -> None:
        _, identifier = self._client.unsubscribe(topic_filter)
        self._wait_answer(identifier)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        info = self._client.publish(topic, payload, qos, retain, to_paho(properties))
        info.wait_for_publish(DEADLINE)
        assert info.is_published(), "not acknowledged in time"

    def disconnect(self) -> None:
        self._client.disconnect()
        assert self._disconnected.wait(DEADLINE)
        self._client.loop_stop()

    def drop(self) -> None:
        drop_socket(self._client.socket())
        assert self._disconnected.wait(DEADLINE)
        self._client.loop_stop()

    def close(self) -> None:
        if self._client.is_connected():
            self.disconnect()
        self._client.loop_stop()
