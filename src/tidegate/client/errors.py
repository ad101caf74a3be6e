"""What can end a call of the client, or its connection.

Refusals carry the reason code and the Reason String of the server; every error has a `hint`, one sentence to
act on or nothing. Errors of the codec (`MQTTError`) and of the network (`NetError`) come through unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import TidegateError
from tidegate.mqtt.codes import REASON_CODES, ReasonCode
from tidegate.mqtt.properties import Properties, Property


class ClientError(TidegateError):
    """Base of this room's errors."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotConnected(ClientError):
    """The client was never connected, or has been closed by this side."""


class NotSupported(ClientError):
    """The protocol version in use, or this server, does not offer what was asked for."""


class OperationTimeout(ClientError, TimeoutError):
    """No answer within the time the caller gave. What was asked for may still happen."""


class NoResponder(ClientError):
    """Nobody is subscribed to the topic of a request, as the server said when it took it."""


class SessionLost(ClientError):
    """The server forgot the session while a QoS 2 message was on its way: it may have arrived or not.

    Sending it again could deliver it twice, so that decision is the caller's.
    """


class OutboxError(ClientError):
    """The file of the outbox cannot be read or written; a message that met it was not accepted."""


class OutboxFull(ClientError):
    """The outbox holds as many messages as it may, and its policy is to refuse more."""


class Refused(ClientError):
    """The server answered with a reason code of 0x80 or above."""

    def __init__(self, what: str, reason_code: int, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.reason_string: str = (properties or {}).get(Property.REASON_STRING, "")
        explanation = f" ({self.reason_string})" if self.reason_string else ""
        super().__init__(f"{what}: {describe(reason_code)}{explanation}", hint=_HINTS.get(reason_code, ""))


class ConnectRefused(Refused):
    """CONNACK said no. `server_reference` is where else to go, if the server named a place."""

    def __init__(self, reason_code: int, properties: Properties | None = None) -> None:
        super().__init__("the server refused the connection", reason_code, properties)
        self.server_reference: str | None = (properties or {}).get(Property.SERVER_REFERENCE)


class PublishRefused(Refused):
    """PUBACK, PUBREC or PUBCOMP said no; the message was not accepted."""

    def __init__(self, topic: str, reason_code: int, properties: Properties | None = None) -> None:
        super().__init__(f"the server refused a message to {topic!r}", reason_code, properties)
        self.topic = topic


class SubscribeRefused(Refused):
    """SUBACK said no to at least one filter; `reason_codes` has one answer a filter, granted ones too."""

    def __init__(
        self, topic_filters: Sequence[str], reason_codes: Sequence[int], properties: Properties | None = None
    ) -> None:
        self.topic_filters = tuple(topic_filters)
        self.reason_codes = tuple(reason_codes)
        refused = [
            (name, code) for name, code in zip(topic_filters, reason_codes, strict=False) if code >= 0x80
        ]
        names = ", ".join(repr(name) for name, _ in refused)
        super().__init__(f"the server refused {self._what} {names}", refused[0][1], properties)

    _what = "the subscription to"


class UnsubscribeRefused(SubscribeRefused):
    """UNSUBACK said no to at least one filter."""

    _what = "to end the subscription to"


class ConnectionLost(ClientError):
    """The connection ended and this side did not want it to."""


class ServerDisconnected(ConnectionLost):
    """The server sent DISCONNECT. `server_reference` is where else to go, if it named a place."""

    def __init__(self, reason_code: int, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.reason_string: str = (properties or {}).get(Property.REASON_STRING, "")
        self.server_reference: str | None = (properties or {}).get(Property.SERVER_REFERENCE)
        explanation = f" ({self.reason_string})" if self.reason_string else ""
        super().__init__(
            f"the server ended the connection: {describe(reason_code)}{explanation}",
            hint=_HINTS.get(reason_code, ""),
        )


class ServerSilent(ConnectionLost):
    """The server did not answer a PINGREQ in time."""


def describe(reason_code: int) -> str:
    """A reason code in words, with its number for those who look it up."""
    code = REASON_CODES.get(reason_code)
    if code is None:
        return f"reason code 0x{reason_code:02X}"
    return f"{code.name.lower().replace('_', ' ')} (0x{reason_code:02X})"


_HINTS: dict[int, str] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "try the other protocol version, 3.1.1 or 5",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "choose another client identifier",
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: "check the user name and the password",
    ReasonCode.NOT_AUTHORIZED: "give a user name and a password, or ask for the right to do this",
    ReasonCode.SERVER_UNAVAILABLE: "try again later",
    ReasonCode.SERVER_BUSY: "try again later",
    ReasonCode.SERVER_SHUTTING_DOWN: "try again when the server is back",
    ReasonCode.BANNED: "ask the administrator of the server",
    ReasonCode.KEEP_ALIVE_TIMEOUT: "use a longer keep alive, or do not block the event loop",
    ReasonCode.SESSION_TAKEN_OVER: "another client uses the same client identifier; give each its own",
    ReasonCode.TOPIC_FILTER_INVALID: "check the topic filter",
    ReasonCode.TOPIC_NAME_INVALID: "check the topic name",
    ReasonCode.PACKET_TOO_LARGE: "send smaller messages, or raise the limit of the server",
    ReasonCode.MESSAGE_RATE_TOO_HIGH: "send more slowly",
    ReasonCode.QUOTA_EXCEEDED: "send more slowly, or ask for a larger quota",
    ReasonCode.RETAIN_NOT_SUPPORTED: "publish without retain",
    ReasonCode.QOS_NOT_SUPPORTED: "use a lower QoS",
    ReasonCode.USE_ANOTHER_SERVER: "connect to the server it names",
    ReasonCode.SERVER_MOVED: "connect to the server it names",
    ReasonCode.CONNECTION_RATE_EXCEEDED: "connect less often",
}
