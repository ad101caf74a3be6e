"""Who a publisher is, beyond one connection: what was learnt is kept, and a new name is no new beginning.

A client id is whatever the client says. An attacker who is held, or who never finishes training, would simply come
back under another one. So a state that is suspicious, in training or on probation when its last connection closes is
left at the address it came from, and the next unknown client id from there continues with it. A publisher in good
standing leaves nothing behind, so clients behind one address do not pay for each other's normal traffic. Only who is
connected counts among those that tell what is usual, so names that are used up do not add to it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from tidegate.flow.backoff.base import BackoffPolicy, Prior, Publisher

CAPACITY: Final = 65_536
STATE_BYTES: Final = 1_600  # of what is known of one publisher, beside its name
EVICT_TRIES: Final = 8  # bounds the work of one connection
LEFT_AT_ADDRESS: Final = 16  # states that wait at one address; the newest is continued first


class Identity(NamedTuple):
    """`user` is authenticated, or "" for anonymous clients; a user's client ids are its own."""

    client_id: str
    user: str = ""


def _size(identity: Identity) -> int:
    return STATE_BYTES + sys.getsizeof(identity.client_id) + sys.getsizeof(identity.user)


@dataclass(slots=True)
class _Known:
    publisher: Publisher
    connections: int


class IdentityTable:
    """Publishers by identity, the longest unused forgotten first, and states left at addresses.

    `capacity` and `most_bytes` bound each table; clients that are connected count, but stay. A state left at an address
    is continued within `memory` seconds. Two ids that share a state share its allowance as well.
    """

    __slots__ = (
        "_capacity", "_known", "_known_bytes", "_left", "_left_bytes", "_left_count", "_memory", "_policy",
        "most_bytes",
    )  # fmt: skip

    def __init__(
        self,
        policy: BackoffPolicy,
        *,
        capacity: int = CAPACITY,
        most_bytes: float = inf,
        memory: float = 600.0,
    ) -> None:
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self._policy = policy
        self._capacity = capacity
        self._memory = memory
        self.most_bytes = most_bytes
        self._known: OrderedDict[Identity, _Known] = OrderedDict()
        self._left: OrderedDict[str, list[tuple[float, Identity, Publisher]]] = OrderedDict()
        self._known_bytes = self._left_bytes = self._left_count = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def size_bytes(self) -> int:
        return self._known_bytes + self._left_bytes

    def open(
        self, client_id: str, user: str, address: str, now: float, prior: Prior | None = None
    ) -> Publisher:
        """The state of a client that connects. An address "" (a local socket, a proxy) leaves and takes nothing."""
        identity = Identity(client_id, user)
        known = self._known.get(identity)
        if known is not None:
            self._known.move_to_end(identity)
            known.connections += 1
            self._policy.join(known.publisher)
            return known.publisher
        publisher = self._take(address, now) if prior is None else None
        if publisher is None:
            publisher = self._policy.publisher(identity, prior)
        else:
            self._policy.join(publisher)
        self._known[identity] = _Known(publisher, 1)
        self._known_bytes += _size(identity)
        if len(self._known) > self._capacity or self._known_bytes > self.most_bytes:
            self._evict()
        return publisher

    def known(self, client_id: str, user: str) -> Publisher | None:
        """What is known of a client, if it is; nothing is changed."""
        known = self._known.get(Identity(client_id, user))
        return None if known is None else known.publisher

    def is_connected(self, client_id: str, user: str) -> bool:
        known = self._known.get(Identity(client_id, user))
        return known is not None and known.connections > 0

    def close(self, client_id: str, user: str, address: str, now: float) -> None:
        """The client's connection is gone. What was learnt stays."""
        identity = Identity(client_id, user)
        known = self._known.get(identity)
        if known is None:
            return
        known.connections -= 1
        if known.connections > 0:
            return
        self._policy.leave(known.publisher)
        if known.publisher.is_in_good_standing or not address:
            return
        before = self._left.pop(address, [])
        after = [entry for entry in before if entry[2] is not known.publisher][-LEFT_AT_ADDRESS + 1 :]
        after.append((now, identity, known.publisher))
        self._left[address] = after
        self._count_left(after, 1)
        self._count_left(before, -1)
        while self._left_count > self._capacity or self._left_bytes > self.most_bytes:
            self._count_left(self._left.popitem(last=False)[1], -1)

    def _take(self, address: str, now: float) -> Publisher | None:
        left = self._left.get(address)
        if left is None:
            return None
        entry = left.pop()
        self._count_left([entry], -1)
        if not left:
            del self._left[address]
        when, _, publisher = entry
        return publisher if now - when <= self._memory else None

    def _count_left(self, entries: list[tuple[float, Identity, Publisher]], sign: int) -> None:
        self._left_count += sign * len(entries)
        self._left_bytes += sign * sum(_size(identity) for _, identity, _ in entries)

    def _evict(self) -> None:
        """Forget the longest unused that is not connected; if there is none at hand, the bound is on connections."""
        for _ in range(EVICT_TRIES):
            identity, oldest = self._known.popitem(last=False)
            if oldest.connections <= 0:
                self._known_bytes -= _size(identity)
                if self._known_bytes <= self.most_bytes:
                    return
            else:
                self._known[identity] = oldest
