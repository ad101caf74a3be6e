"""Which member of a shared subscription gets a message."""

from tidegate.flow.shared.base import SharedPolicy
from tidegate.flow.shared.earliest import EarliestFinish, Ordering
from tidegate.flow.shared.inflight import LeastInflight
from tidegate.flow.shared.load import ClientLoad, Member
from tidegate.flow.shared.reporter import LoadReporter
from tidegate.flow.shared.service import ServiceTime
from tidegate.flow.shared.static import HashClient, HashTopic, RandomMember, RoundRobin, Sticky
from tidegate.flow.shared.thesis import Thesis

__all__ = [
    "ClientLoad",
    "EarliestFinish",
    "HashClient",
    "HashTopic",
    "LeastInflight",
    "LoadReporter",
    "Member",
    "Ordering",
    "RandomMember",
    "RoundRobin",
    "ServiceTime",
    "SharedPolicy",
    "Sticky",
    "Thesis",
]
