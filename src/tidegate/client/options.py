"""How a client connects and how much it holds: one frozen value, checked when it is made."""

from __future__ import annotations

import ssl as ssl_module
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tidegate.client.errors import ClientError
from tidegate.client.load_meter import Carrier, ReportOptions
from tidegate.flow.load_report import NEGOTIATION
from tidegate.mqtt.packets import Connect, Will
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.reader import MAX_PACKET_SIZE

NEVER = 0xFFFF_FFFF
"""As a Session Expiry Interval: the session does not expire (MQTT 5 section 3.1.2.11.2)."""


class WhenFull(StrEnum):
    """What happens to a new message when the outbox is full."""

    WAIT = "wait"
    """`publish` waits for a place, `publish_nowait` raises."""
    REFUSE = "refuse"
    """Both raise `OutboxFull`."""
    DROP_OLDEST = "drop_oldest"
    """The oldest message that was not sent yet makes place, and is counted; if all were sent, as `WAIT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of one client. Times in seconds; MQTT 3.1.1 ignores what it cannot say.

    - `protocol_version`: 5, or 4 for MQTT 3.1.1.
    - `keep_alive`: a PINGREQ goes out before this much silence; 0 turns pings, and with them the detection of
      a dead server, off. `ping_timeout`: how long its answer may take; None means `keep_alive`, at most 10.
    - `receive_maximum`: QoS 1 and 2 messages the server may send before we acknowledge; never more than
      `receive_queue_size`, so these always fit.
    - `max_in_flight`: QoS 1 and 2 messages we send before the server acknowledges; at most its Receive
      Maximum. None means just that or, since MQTT 3.1.1 has none, 20: what its servers and clients agree on.
    - `receive_queue_size`: messages held for the application. Full: the client stops reading.
    - `send_queue_size`: QoS 1 and 2 messages that may be on their way or waiting. Full: `publish` waits.
    - `manual_ack`: messages are acknowledged by `message.ack()`, not when the application takes them.
    - `topic_aliases`: how many Topic Aliases to use for what we publish, if the server allows as many.
    - `topic_alias_maximum`: how many the server may use for what it sends.
    - `reconnect`: come back after a lost connection; waits grow from `reconnect_min_delay` to
      `reconnect_max_delay` with decorrelated jitter. The first connection is never retried.
    - `max_redirects`: how often to follow a server that names another one (0x9C, 0x9D) before giving up; 0 never.
    - `outbox`: a file in which messages of QoS 1 and 2 are kept from the moment they are accepted until the server
      has them; `publish` then returns when a message is in the file. At most `outbox_size` messages, then
      `outbox_when_full` decides: "wait", "refuse" or "drop_oldest".
    - `reports`: how the server learns of our load: "auto", "ping", "puback", "publish" or "off", or a `ReportOptions`.
    - `properties`: further CONNECT properties; those that have their own option win.
    - `headers`: for the WebSocket upgrade.
    """

    protocol_version: int = 5
    client_id: str = ""
    username: str | None = None
    password: str | bytes | None = field(default=None, repr=False)
    will: Will | None = None
    clean_start: bool = True
    keep_alive: int = 60
    ping_timeout: float | None = None
    session_expiry_interval: int = 0
    receive_maximum: int = 1000
    max_in_flight: int | None = None
    maximum_packet_size: int = MAX_PACKET_SIZE
    topic_aliases: int = 0
    topic_alias_maximum: int = 0
    user_properties: tuple[tuple[str, str], ...] = ()
    properties: Properties = field(default_factory=dict)
    ssl: ssl_module.SSLContext | None = None
    headers: Mapping[str, str] | None = None
    connect_timeout: float = 10.0
    operation_timeout: float | None = 30.0
    receive_queue_size: int = 1000
    send_queue_size: int = 1000
    manual_ack: bool = False
    response_topic_prefix: str = "tidegate/reply"
    reconnect: bool = False
    reconnect_min_delay: float = 0.5
    reconnect_max_delay: float = 60.0
    max_redirects: int = 5
    outbox: str | Path | None = None
    outbox_size: int = 100_000
    outbox_when_full: WhenFull | str = WhenFull.WAIT
    reports: ReportOptions | Carrier | str = Carrier.AUTO

    def __post_init__(self) -> None:
        if self.protocol_version not in (4, 5):
            raise ClientError(
                f"protocol version {self.protocol_version} is not known", hint="use 5, or 4 for MQTT 3.1.1"
            )
        for name, lowest, highest in _RANGES:
            value = getattr(self, name)
            if value is not None and not lowest <= value <= highest:
                raise ClientError(f"{name} is {value}", hint=f"use a number from {lowest} to {highest}")
        if self.protocol_version == 4 and self.password is not None and self.username is None:
            raise ClientError("MQTT 3.1.1 has no password without a user name", hint="give a user name, too")
        if self.outbox is not None and not self.client_id:
            # Without one the server makes up another for each process, and cannot tell a repeated message.
            raise ClientError("an outbox needs a client identifier that stays", hint="give a client_id")
        _member(WhenFull, self.outbox_when_full, "outbox_when_full")
        if not isinstance(self.reports, ReportOptions):
            _member(Carrier, self.reports, "reports")

    @property
    def report_options(self) -> ReportOptions:
        if isinstance(self.reports, ReportOptions):
            return self.reports
        return ReportOptions(carrier=Carrier(self.reports))

    @property
    def effective_max_in_flight(self) -> int:
        if self.max_in_flight is None:
            return 65_535 if self.protocol_version == 5 else _MAX_IN_FLIGHT_V4
        return self.max_in_flight

    @property
    def effective_receive_maximum(self) -> int:
        return min(self.receive_maximum, self.receive_queue_size)

    @property
    def effective_ping_timeout(self) -> float:
        return min(self.keep_alive, 10.0) if self.ping_timeout is None else self.ping_timeout

    def connect_packet(self, client_id: str, *, clean_start: bool) -> Connect:
        """The CONNECT these options ask for; identifier and Clean Start change when a session goes on."""
        password = self.password.encode() if isinstance(self.password, str) else self.password
        return Connect(
            client_id=client_id,
            clean_start=clean_start,
            keep_alive=self.keep_alive,
            username=self.username,
            password=password,
            will=self.will,
            properties=self._connect_properties() if self.protocol_version == 5 else {},
            protocol_level=self.protocol_version,
        )

    def _connect_properties(self) -> Properties:
        properties = dict(self.properties)
        properties[Property.RECEIVE_MAXIMUM] = self.effective_receive_maximum
        if self.session_expiry_interval:
            properties[Property.SESSION_EXPIRY_INTERVAL] = self.session_expiry_interval
        if self.maximum_packet_size < MAX_PACKET_SIZE:
            properties[Property.MAXIMUM_PACKET_SIZE] = self.maximum_packet_size
        if self.topic_alias_maximum:
            properties[Property.TOPIC_ALIAS_MAXIMUM] = self.topic_alias_maximum
        pairs = [*properties.get(Property.USER_PROPERTY, ()), *self.user_properties]
        if self.report_options.carrier in (Carrier.AUTO, Carrier.PING):
            pairs.append(NEGOTIATION)
        if pairs:
            properties[Property.USER_PROPERTY] = pairs
        return properties


def _member(kind: type[StrEnum], value: str, name: str) -> None:
    if value not in list(kind):
        raise ClientError(f"{name} is {value!r}", hint=f"use one of {', '.join(kind)}")


# Mosquitto resets a 3.1.1 connection that has more QoS 2 messages open than its own limit, 20 by default.
_MAX_IN_FLIGHT_V4 = 20

_RANGES = (
    ("max_in_flight", 1, 65_535),
    ("keep_alive", 0, 65_535),
    ("session_expiry_interval", 0, NEVER),
    ("receive_maximum", 1, 65_535),
    ("maximum_packet_size", 1, MAX_PACKET_SIZE),
    ("topic_aliases", 0, 65_535),
    ("topic_alias_maximum", 0, 65_535),
    ("receive_queue_size", 1, 10_000_000),
    ("send_queue_size", 1, 10_000_000),
    ("outbox_size", 1, 1_000_000_000),
    ("max_redirects", 0, 100),
    ("connect_timeout", 0, 10_000_000),
    ("operation_timeout", 0, 10_000_000),
)
