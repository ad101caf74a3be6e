"""Decisions as pure objects, found by name: no clock, no socket, no randomness of their own."""

from tidegate.errors import TidegateError
from tidegate.flow.shared import RandomMember, RoundRobin, SharedPolicy

SHARED: dict[str, type[SharedPolicy]] = {"round_robin": RoundRobin, "random": RandomMember}


class UnknownPolicy(TidegateError):
    """A policy name that is not in the registry."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"unknown {kind} policy {name!r}; known: {', '.join(sorted(known))}")
        self.kind = kind
        self.name = name


def shared_policy(name: str) -> type[SharedPolicy]:
    """The class of a shared-subscription policy; raises `UnknownPolicy`."""
    try:
        return SHARED[name]
    except KeyError:
        raise UnknownPolicy("shared", name, list(SHARED)) from None


__all__ = ["SHARED", "RandomMember", "RoundRobin", "SharedPolicy", "UnknownPolicy", "shared_policy"]
