"""What nodes tell each other: topics below `LINK_TOPIC`, JSON in the payload, QoS 1, or 2 if it must not come twice."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any, Final

from tidegate.broker.hooks import (
    LINK_CLIENT,
    LINK_RETAINED,
    LINK_TOPIC,
    LINK_USER,
    ConnectRequest,
    Verdict,
)
from tidegate.broker.message import Message
from tidegate.cluster.settings import Role
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Properties, Property

BOOT_PROPERTY: Final = "boot"
"""User Property on CONNECT of a node: another one each time that it is started."""
OTHER_WAY: Final = "linked the other way round"
RETAINED: Final = LINK_RETAINED  # then QoS, "/", topic
HELLO: Final = "hello"  # who I am and where clients reach me
FILTERS: Final = "filters"  # all that I subscribe to, so that what is gone is forgotten
STATE: Final = "state"  # my load
NODES: Final = "nodes"  # the cluster as the head sees it
# QoS 2: they come once, and a node with a store sends them after its commit. The other node acts on them for good: had
# the sender forgotten by a crash what it said, a session would be with nobody.
EXACT: Final = frozenset(
    {
        "adopt", "adopted", "append", "copy", "cut", "drop", "freeze", "frozen", "inherit", "install", "installed",
        "kept", "lost", "release", "stray", "tail", "thaw",
    }
)  # fmt: skip


def client_id(role: Role, name: str) -> str:
    return f"{LINK_CLIENT}{role.value}/{name}"


def parse_client_id(text: str) -> tuple[Role, str]:
    """Role and name of a node; raises ValueError for anything else."""
    _, role, name = text.split("/", 2)
    return Role(role), name


def boot_of(properties: Properties) -> str:
    """Which start of a node this is; empty if it does not say."""
    given = properties.get(Property.USER_PROPERTY, ())
    return next((str(value) for name, value in given if name == BOOT_PROPERTY), "")


def encode(kind: str, value: dict[str, Any]) -> Message:
    payload = json.dumps(value, separators=(",", ":")).encode()
    return Message(LINK_TOPIC + kind.encode(), payload, 2 if kind in EXACT else 1)


def decode(message: Message) -> tuple[str, dict[str, Any]]:
    """Kind and content; what makes no sense is an empty object."""
    kind = message.topic[len(LINK_TOPIC) :].decode(errors="replace")
    try:
        value = json.loads(message.payload)
    except ValueError:
        value = {}
    return kind, value if isinstance(value, dict) else {}


class LinkAuthenticator:
    """Lets in who knows the secret of the cluster and calls itself a node."""

    def __init__(self, secret: str, objection: Callable[[ConnectRequest], str] = lambda _: "") -> None:
        self._secret = secret.encode()
        self._objection = objection

    def authenticate(self, request: ConnectRequest) -> Verdict:
        is_right = hmac.compare_digest(request.password or b"", self._secret)
        if not is_right or request.version != 5:
            return Verdict(
                reason_code=ReasonCode.NOT_AUTHORIZED, reason="the secret of the cluster is another one"
            )
        try:
            parse_client_id(request.client_id)
        except ValueError:
            return Verdict(reason_code=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
        objection = self._objection(request)
        if objection:
            return Verdict(reason_code=ReasonCode.SERVER_BUSY, reason=objection, is_expected=True)
        return Verdict(user=LINK_USER)
