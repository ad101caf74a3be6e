"""Decisions as pure objects, found by name: no clock, no socket, no randomness of their own."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tidegate.errors import TidegateError
from tidegate.flow.backoff import AdaptiveBackoff, BackoffPolicy, NoBackoff, PaperBackoff
from tidegate.flow.priority import AgeingPriority, NoPriority, PaperPriority, PriorityPolicy
from tidegate.flow.shared import (
    EarliestFinish,
    LeastInflight,
    RandomMember,
    RoundRobin,
    SharedPolicy,
    Sticky,
    Thesis,
    hash_client,
    hash_topic,
)

SHARED: dict[str, Callable[[], SharedPolicy]] = {
    "round_robin": RoundRobin,
    "random": RandomMember,
    "sticky": Sticky,
    "hash_client": hash_client,
    "hash_topic": hash_topic,
    "least_inflight": LeastInflight,
    "thesis": Thesis,
    "earliest_finish": EarliestFinish,
}
# A policy's parameters are its own, hence callables: the keywords are those of the class.
BACKOFF: dict[str, Callable[..., BackoffPolicy]] = {
    "adaptive": AdaptiveBackoff,
    "paper": PaperBackoff,
    "off": NoBackoff,
}
PRIORITY: dict[str, Callable[..., PriorityPolicy]] = {
    "ageing": AgeingPriority,
    "paper": PaperPriority,
    "off": NoPriority,
}

_T = TypeVar("_T")


class UnknownPolicy(TidegateError):
    """A policy name that is not in the registry."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"unknown {kind} policy {name!r}; known: {', '.join(sorted(known))}")
        self.kind = kind
        self.name = name


def _find(kind: str, name: str, registry: Mapping[str, _T]) -> _T:
    try:
        return registry[name]
    except KeyError:
        raise UnknownPolicy(kind, name, list(registry)) from None


def shared_policy(name: str) -> Callable[[], SharedPolicy]:
    """What makes the policy of one shared-subscription group. Raises `UnknownPolicy`."""
    return _find("shared", name, SHARED)


def backoff_policy(name: str) -> Callable[..., BackoffPolicy]:
    """What makes a back-off policy; its keywords differ, none is required. Raises `UnknownPolicy`."""
    return _find("backoff", name, BACKOFF)


def priority_policy(name: str) -> Callable[..., PriorityPolicy]:
    """What makes a priority policy; its keywords differ, none is required. Raises `UnknownPolicy`."""
    return _find("priority", name, PRIORITY)


__all__ = [
    "BACKOFF",
    "PRIORITY",
    "SHARED",
    "BackoffPolicy",
    "PriorityPolicy",
    "RandomMember",
    "RoundRobin",
    "SharedPolicy",
    "UnknownPolicy",
    "backoff_policy",
    "priority_policy",
    "shared_policy",
]
