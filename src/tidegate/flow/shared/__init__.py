"""Which member of a shared subscription gets a message."""

from tidegate.flow.shared.base import SharedPolicy
from tidegate.flow.shared.earliest import EarliestFinish, Ordering
from tidegate.flow.shared.inflight import LeastInflight
from tidegate.flow.shared.load import ClientLoad, Member
from tidegate.flow.shared.service import ServiceTime
from tidegate.flow.shared.static import Hashed, RandomMember, RoundRobin, Sticky, hash_client, hash_topic
from tidegate.flow.shared.thesis import Thesis

__all__ = [
    "ClientLoad",
    "EarliestFinish",
    "Hashed",
    "LeastInflight",
    "Member",
    "Ordering",
    "RandomMember",
    "RoundRobin",
    "ServiceTime",
    "SharedPolicy",
    "Sticky",
    "Thesis",
    "hash_client",
    "hash_topic",
]
