"""Whether to connect again, and how long to wait before."""

from __future__ import annotations

from tidegate.client.errors import ConnectRefused, ServerDisconnected
from tidegate.errors import TidegateError
from tidegate.flow.timeout import DecorrelatedJitter
from tidegate.mqtt.codes import ReasonCode

# Trying again would get the same answer or, after a take-over, start a fight between two clients of one name.
_FINAL = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
        ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.PAYLOAD_FORMAT_INVALID,
        ReasonCode.RETAIN_NOT_SUPPORTED,
        ReasonCode.QOS_NOT_SUPPORTED,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
    }
)


def is_final(error: Exception | None) -> bool:
    """Whether connecting again cannot help."""
    if isinstance(error, ConnectRefused | ServerDisconnected):
        return error.reason_code in _FINAL
    return not isinstance(error, TidegateError)


__all__ = ["DecorrelatedJitter", "is_final"]
