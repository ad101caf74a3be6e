"""Whether to connect again, and how long to wait before."""

from __future__ import annotations

from random import Random

from tidegate.client.errors import ConnectRefused, ServerDisconnected
from tidegate.errors import TidegateError
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


class DecorrelatedJitter:
    """Each wait is drawn between the shortest and three times the one before, up to the longest.

    Clients that lost the same server at the same moment drift apart quickly, so it is not hit by all of them
    at once when it comes back; plain doubling keeps them in step.
    """

    def __init__(self, shortest: float, longest: float, random: Random) -> None:
        self._shortest = shortest
        self._longest = longest
        self._random = random
        self._last = shortest

    def next_delay(self) -> float:
        self._last = min(self._longest, self._random.uniform(self._shortest, self._last * 3))
        return self._last

    def on_lost(self, lived: float) -> None:
        """A connection ended after `lived` seconds; only one that lasted makes the waits short again.

        A server that accepts everybody and drops them at once is as much in need of rest as one that is down.
        """
        if lived > self._last:
            self._last = self._shortest
