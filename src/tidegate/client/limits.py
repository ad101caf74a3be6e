"""What the server allows on this connection, as its CONNACK says (MQTT 5 section 3.2.2.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.client.errors import NotSupported
from tidegate.client.options import ClientOptions
from tidegate.mqtt.packets import Connack, Subscription
from tidegate.mqtt.properties import Properties, Property


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Negotiated values; the defaults are what an absent property means."""

    receive_maximum: int = 65_535
    maximum_qos: int = 2
    retain_available: bool = True
    maximum_packet_size: int | None = None
    topic_alias_maximum: int = 0
    wildcard_subscription_available: bool = True
    subscription_identifier_available: bool = True
    shared_subscription_available: bool = True
    keep_alive: int = 0
    session_expiry_interval: int = 0
    client_id: str = ""
    response_information: str | None = None
    properties: Properties = field(default_factory=dict)

    @classmethod
    def of(cls, connack: Connack, options: ClientOptions, client_id: str) -> ServerLimits:
        given = connack.properties
        return cls(
            receive_maximum=min(given.get(Property.RECEIVE_MAXIMUM, 65_535), options.effective_max_in_flight),
            maximum_qos=given.get(Property.MAXIMUM_QOS, 2),
            retain_available=bool(given.get(Property.RETAIN_AVAILABLE, 1)),
            maximum_packet_size=given.get(Property.MAXIMUM_PACKET_SIZE),
            topic_alias_maximum=given.get(Property.TOPIC_ALIAS_MAXIMUM, 0),
            wildcard_subscription_available=bool(given.get(Property.WILDCARD_SUBSCRIPTION_AVAILABLE, 1)),
            subscription_identifier_available=bool(given.get(Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE, 1)),
            shared_subscription_available=bool(given.get(Property.SHARED_SUBSCRIPTION_AVAILABLE, 1)),
            # [MQTT5-3.2.2-21]: the server's value replaces ours.
            keep_alive=given.get(Property.SERVER_KEEP_ALIVE, options.keep_alive),
            session_expiry_interval=given.get(
                Property.SESSION_EXPIRY_INTERVAL, options.session_expiry_interval
            ),
            client_id=given.get(Property.ASSIGNED_CLIENT_IDENTIFIER, client_id),
            response_information=given.get(Property.RESPONSE_INFORMATION),
            properties=given,
        )

    def check_publish(self, qos: int, *, retain: bool) -> None:
        _check_qos(qos)
        if qos > self.maximum_qos:
            # [MQTT5-3.2.2-11]
            raise NotSupported(
                f"the server takes QoS {self.maximum_qos} at most", hint="publish with a lower QoS"
            )
        if retain and not self.retain_available:
            # [MQTT5-3.2.2-14]
            raise NotSupported("the server keeps no retained messages", hint="publish without retain")

    def check_subscribe(self, subscription: Subscription, identifier: int | None) -> None:
        topic_filter = subscription.topic_filter
        _check_qos(subscription.qos)
        if identifier is not None and not self.subscription_identifier_available:
            raise NotSupported(
                "the server has no subscription identifiers", hint="subscribe without an identifier"
            )
        if not self.shared_subscription_available and topic_filter.startswith("$share/"):
            raise NotSupported("the server has no shared subscriptions", hint="subscribe without $share")
        if not self.wildcard_subscription_available and ("+" in topic_filter or "#" in topic_filter):
            raise NotSupported("the server has no wildcard subscriptions", hint="name each topic")


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise NotSupported(f"QoS {qos} does not exist", hint="use 0, 1 or 2")
