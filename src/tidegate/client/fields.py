"""What `publish` is given: a payload in one of several forms, and properties as keyword arguments with their types."""

from __future__ import annotations

from typing import Final, TypeAlias, TypedDict

from tidegate.client.errors import ClientError
from tidegate.mqtt.properties import Properties, Property

Payload: TypeAlias = bytes | bytearray | memoryview | str


class MessageFields(TypedDict, total=False):
    """MQTT 5 properties of a PUBLISH (section 3.3.2.3); None means absent. `properties` holds any by name."""

    payload_format_indicator: int | None
    message_expiry_interval: int | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    topic_alias: int | None
    user_properties: tuple[tuple[str, str], ...]
    properties: Properties | None


_PROPERTY_OF: Final = {
    "payload_format_indicator": Property.PAYLOAD_FORMAT_INDICATOR,
    "message_expiry_interval": Property.MESSAGE_EXPIRY_INTERVAL,
    "content_type": Property.CONTENT_TYPE,
    "response_topic": Property.RESPONSE_TOPIC,
    "correlation_data": Property.CORRELATION_DATA,
    "topic_alias": Property.TOPIC_ALIAS,
}


def payload_bytes(payload: Payload) -> bytes:
    """The bytes to send; raises `ClientError` for what is no payload, such as a number."""
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise ClientError(
        f"a payload is text or bytes, not {type(payload).__name__}",
        hint="use str(value), json.dumps(value) or an encoding of your own",
    )


def message_properties(fields: MessageFields) -> Properties:
    """The property list these arguments describe; raises `TypeError` for a name that is none of them."""
    properties: Properties = dict(fields.get("properties") or {})
    for name, value in fields.items():
        if name in _PROPERTY_OF:
            if value is not None:
                properties[_PROPERTY_OF[name]] = value
        elif name == "user_properties":
            pairs = fields["user_properties"]
            if pairs:
                properties[Property.USER_PROPERTY] = [*properties.get(Property.USER_PROPERTY, ()), *pairs]
        elif name != "properties":
            raise TypeError(f"a message has no {name!r}")
    return properties
