"""One class a packet kind, shared by all protocol versions; the version is an argument of the codec.

Fields that a version does not have keep their default. Reason codes are those of MQTT 5 in every version
(a 3.1.1 return code 4 reads as BAD_USER_NAME_OR_PASSWORD), so callers know one vocabulary.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.mqtt.codes import PacketType, ReasonCode
from tidegate.mqtt.properties import Properties

__all__ = [
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Suback",
    "Subscribe",
    "Subscription",
    "Unsuback",
    "Unsubscribe",
    "Will",
]


@dataclass(slots=True, kw_only=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Connect:
    """`protocol_level` is 3 (MQTT 3.1), 4 (3.1.1) or 5; `clean_start` is 3.1.1's Clean Session."""

    client_id: str = ""
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=dict)
    protocol_level: int = 5
    protocol_name: str = "MQTT"


@dataclass(slots=True, kw_only=True)
class Connack:
    session_present: bool = False
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Publish:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_identifier: int | None = None
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Puback:
    packet_identifier: int
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Pubrec:
    packet_identifier: int
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Pubrel:
    packet_identifier: int
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Pubcomp:
    packet_identifier: int
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One topic filter of a SUBSCRIBE with its options; 3.1.1 has only `qos`."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True, kw_only=True)
class Subscribe:
    packet_identifier: int
    subscriptions: list[Subscription]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Suback:
    packet_identifier: int
    reason_codes: list[int]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Unsubscribe:
    packet_identifier: int
    topic_filters: list[str]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Unsuback:
    """`reason_codes` is empty when read from 3.1.1, which does not send them."""

    packet_identifier: int
    reason_codes: list[int] = field(default_factory=list)
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Pingreq:
    pass


@dataclass(slots=True, kw_only=True)
class Pingresp:
    pass


@dataclass(slots=True, kw_only=True)
class Disconnect:
    reason_code: int = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Auth:
    reason_code: int = ReasonCode.SUCCESS
    properties: Properties = field(default_factory=dict)


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
