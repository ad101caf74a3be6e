"""What can be set about a broker: plain frozen dataclasses with safe defaults.

Every field carries its help text in `metadata`; the configuration file, `--set`, the environment and the
reference page are all generated from these classes, so a key exists in exactly one place.
Times are seconds, sizes bytes. Zero means "no limit" only where the help says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.flow import SHARED


def setting(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[str] = (),
) -> Any:
    """A field with its help and the range, or the choices, that the configuration loader enforces."""
    metadata: dict[str, Any] = {"help": help, "minimum": minimum, "maximum": maximum}
    if choices:
        metadata["choices"] = tuple(sorted(choices))
    return field(default=default, metadata=metadata)


WEEK = 604_800  # seconds


class QueueFull(StrEnum):
    """What happens to a QoS 1 or 2 publisher when a session it publishes to has no room left."""

    HOLD = "hold"  # its PUBACK/PUBREC comes late: the message waits until there is room
    REFUSE = "refuse"  # MQTT 5 publishers are told 0x97 Quota exceeded; 3.1.1 publishers are held
    DROP = "drop"  # the message is dropped for that session, counted and logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that keep one client from harming another."""

    max_connections: int = setting(18_000, "connections at once, all listeners together", minimum=1)
    connection_rate: float = setting(
        1_000.0,
        "clients admitted per second, node-wide; those over it wait for their turn; 0: no limit",
        minimum=0,
    )
    connection_wait: float = setting(
        30.0,
        "longest a client waits for its turn; beyond it is refused with 0x9F after a random delay",
        minimum=0,
    )
    max_half_open: int = setting(
        4_096,
        "connections that have not completed CONNECT; beyond, the oldest of the address with most of them gives way",
        minimum=1,
    )
    address_connection_rate: float = setting(
        500.0, "new connections per second from one address; 0: no limit; loopback has none", minimum=0
    )
    max_address_connections: int = setting(
        10_000, "connections at once from one address; 0: no limit; loopback has none", minimum=0
    )
    connect_timeout: float = setting(10.0, "seconds a client has to complete CONNECT", minimum=0.1)
    packet_timeout: float = setting(30.0, "seconds a started packet may take to arrive in full", minimum=0.1)
    write_timeout: float = setting(
        60.0, "seconds a client may leave its socket full before it is cut off", minimum=0.1
    )
    max_packet_size: int = setting(
        1_048_576, "largest packet accepted, bytes", minimum=256, maximum=268_435_460
    )
    max_connect_size: int = setting(
        131_072, "largest packet accepted before CONNECT is complete, bytes", minimum=256, maximum=268_435_460
    )
    max_user_properties: int = setting(
        1_000, "user properties in a packet; in CONNECT, and in its will, at most 100", minimum=0
    )
    max_packet_filters: int = setting(
        10_000, "topic filters in one SUBSCRIBE or UNSUBSCRIBE; more end the connection with 0x97", minimum=1
    )
    max_topic_levels: int = setting(128, "levels in a topic name or filter", minimum=1)
    max_topic_alias: int = setting(
        32, "topic aliases a client may use towards us, and we towards it", minimum=0, maximum=65_535
    )
    max_alias_bytes: int = setting(
        65_536, "bytes of the topics behind the aliases of one connection, each way", minimum=65_535
    )
    max_subscriptions: int = setting(10_000, "subscriptions of one session", minimum=1)
    max_client_id_bytes: int = setting(
        1_024,
        "longest client identifier, bytes of UTF-8; longer ones are refused with 0x85",
        minimum=23,
        maximum=65_535,
    )
    max_session_bytes: int = setting(
        16_777_216,
        "bytes of the subscriptions, the will and the name of one session; its queue has bounds of its own",
        minimum=4_096,
    )
    max_sessions: int = setting(1_000_000, "sessions, connected or not", minimum=1)
    max_account_sessions: int = setting(
        100_000,
        "sessions of one account, connected or not, of those at this node; clients without user name are one account",
        minimum=1,
    )
    max_retained: int = setting(1_000_000, "retained messages", minimum=0)
    max_account_retained: int = setting(100_000, "retained messages that one account left", minimum=0)
    max_retained_bytes: int = setting(1_073_741_824, "bytes of retained messages", minimum=0)
    max_account_bytes: int = setting(
        536_870_912,
        "bytes that one account may make this node keep: its sessions with their queues and subscriptions, and the "
        "retained messages it left",
        minimum=65_536,
    )
    receive_maximum: int = setting(
        1_024, "unacknowledged QoS 1 and 2 messages a client may have towards us", minimum=1, maximum=65_535
    )
    max_inflight: int = setting(
        1_024, "unacknowledged QoS 1 and 2 messages we have towards a client", minimum=1, maximum=65_535
    )
    max_queued_messages: int = setting(100_000, "messages queued for one session", minimum=1)
    max_queued_bytes: int = setting(33_554_432, "bytes queued for one session", minimum=1_024)
    max_total_queued_bytes: int = setting(1_073_741_824, "bytes queued for all sessions", minimum=65_536)
    hold_timeout: float = setting(
        300.0,
        "seconds a session may stay full without progress while publishers wait for it; then its messages are "
        "dropped and counted; 0: for ever",
        minimum=0,
    )
    max_memory: int = setting(
        0,
        "memory of the process in bytes; near it new clients are refused (80 %), then QoS 0 is dropped for slow "
        "readers and nothing new is kept (90 %), then QoS 1 and 2 publishers are held (95 %), and over it connections "
        "give way; 0: three quarters of the machine's",
        minimum=0,
    )
    max_held_bytes: int = setting(
        131_072, "bytes read ahead from a publisher while it is held", minimum=1_024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Which parts of MQTT are offered, and on what terms."""

    maximum_qos: int = setting(2, "highest QoS accepted from and granted to clients", minimum=0, maximum=2)
    retain_available: bool = setting(True, "retained messages are kept")
    wildcard_subscription_available: bool = setting(True, "subscriptions may hold wildcards")
    shared_subscription_available: bool = setting(True, "$share/group/filter subscriptions")
    subscription_identifiers_available: bool = setting(True, "MQTT 5 subscription identifiers")
    allow_zero_length_client_id: bool = setting(True, "assign an identifier to clients that send none")
    server_keep_alive: int = setting(
        0,
        "keep-alive imposed on MQTT 5 clients that ask for a longer one or none; 0: theirs rules",
        minimum=0,
        maximum=65_535,
    )
    max_session_expiry: int = setting(
        WEEK,
        "longest session expiry granted; 4294967295: for ever",
        minimum=0,
        maximum=4_294_967_295,
    )
    persistent_session_expiry: int = setting(
        WEEK,
        "session expiry of 3.1.1 clients with clean session 0; 4294967295: for ever",
        minimum=0,
        maximum=4_294_967_295,
    )
    response_information: str = setting(
        "", "prefix for response topics told to clients that ask; %c stands for the client identifier"
    )
    queue_qos0: bool = setting(False, "queue QoS 0 messages for sessions that are offline")
    queue_full: QueueFull = setting(QueueFull.HOLD, "what happens to QoS 1 and 2 when a session has no room")
    shared_policy: str = setting(
        "earliest_finish",
        "how a shared subscription picks its member; [[shared]] for single groups",
        choices=SHARED,
    )
    shared_wait: float = setting(
        0.0,
        "seconds a member that left may take to come back before its QoS 1 messages go to others",
        minimum=0,
    )
    shared_stall: float = setting(
        30.0,
        "seconds without an acknowledgement after which a member's QoS 1 messages go to others; 0: never",
        minimum=0,
    )
    sys_interval: float = setting(10.0, "seconds between $SYS updates; 0: no $SYS topics", minimum=0)
