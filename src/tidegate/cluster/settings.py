"""What can be set about a node's part in a cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tidegate.broker.settings import setting
from tidegate.flow import BALANCE, PLACEMENT

LINK_PORT = 1884


class Role(StrEnum):
    """What a node is."""

    SINGLE = "single"  # no part of a cluster
    HEAD = "head"  # routes between edges and to other heads; publishers connect here
    EDGE = "edge"  # serves subscribers


class Replication(StrEnum):
    """Who else has the sessions of an edge."""

    NONE = "none"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The node's part in a cluster; see docs/cluster.md."""

    role: Role = setting(Role.SINGLE, "single, head or edge")
    heads: tuple[str, ...] = setting(
        (),
        "link addresses of heads, host:port; of an edge: its head first, then who may take over",
    )
    secret: str = setting(
        "", "what nodes prove to each other that they belong together; the same on all of them"
    )
    link_host: str = setting("127.0.0.1", "head: address where other nodes connect")
    link_port: int = setting(
        LINK_PORT, "head: port where other nodes connect; 0 picks a free one", minimum=0, maximum=65_535
    )
    address: str = setting(
        "", "where clients reach this node, as told to those that are sent here; default: its first listener, and if "
        "that listens on every address, the one by which this node and its head reach each other"
    )
    uplink: float = setting(
        0.0,
        "edge: Mbit/s towards subscribers; 0: measured when sockets are backed up, until then it is not known and "
        "nothing is moved for its sake",
        minimum=0,
    )
    downlink: float = setting(0.0, "edge: Mbit/s from the head; 0: as uplink, or measured by the head", minimum=0)
    balance: str = setting("deadline", "when clients are moved to another edge", choices=BALANCE)
    placement: str = setting("spread", "where new subscribers go", choices=PLACEMENT)
    budget: float = setting(
        10.0,
        "seconds from publisher to subscriber that a topic may take if nothing else is said",
        minimum=0.001,
    )
    budgets: tuple[str, ...] = setting(
        (), 'budgets of single topic filters, the first that matches counts: ["alarms/#=0.5", "logs/#=60"]'
    )
    shed: bool = setting(
        True,
        "edge: when the uplink is too small, give up QoS 0 messages that are later than their budget allows",
    )
    admission: bool = setting(
        True,
        "refuse new subscribers with 0x97 when no edge could keep their budget; an edge whose capacity is not known "
        "has room",
    )
    replication: Replication = setting(
        Replication.NONE, "none, or standby: a second edge has a copy of every persistent session; needs data"
    )
    takeover: float = setting(
        4.0, "head: seconds an edge may be away before its standby goes on with its sessions", minimum=0.1
    )
    interval: float = setting(1.0, "seconds between two looks at the load", minimum=0.05)
    redirect: bool = setting(True, "head: send MQTT 5 clients that come to subscribe on to an edge")


def parse_budgets(texts: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Filter and seconds of each; raises ValueError."""
    for text in texts:
        topic_filter, found, seconds = text.rpartition("=")
        if not found or not topic_filter or not float(seconds) > 0.0:
            raise ValueError(f"{text!r} is not FILTER=SECONDS")
        yield topic_filter, float(seconds)
