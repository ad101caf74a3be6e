"""Consistent hashing: which member a key belongs to, such that a change of members moves few keys."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final
from zlib import crc32

from tidegate.flow.shared.load import Member

POINTS: Final = 64  # of a member on the ring; shares then differ by some 12 %
LARGE: Final = 64  # members above which they have fewer: a ring is built anew with every change, within milliseconds
POINTS_LARGE: Final = 8
RINGS: Final = 8  # groups may be cut down to those who may receive a topic; each part has a ring


def position(key: bytes) -> int:
    """Where a key is on the ring; the same in every process. The product spreads CRCs of similar keys."""
    return crc32(key) * 0x9E3779B1 & 0xFFFFFFFF


class Ring:
    """Positions of the members of one tuple; they depend on the members' keys alone."""

    __slots__ = ("_owners", "_points", "members")

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        each = POINTS if len(members) <= LARGE else POINTS_LARGE
        points: list[tuple[int, int]] = []
        for index, member in enumerate(members):
            seed = member.key.encode()
            for block in range(0, each, 16):
                digest = blake2b(seed, digest_size=64, salt=block.to_bytes(2)).digest()
                points += [
                    (int.from_bytes(digest[at : at + 4]), index)
                    for at in range(0, 4 * min(16, each - block), 4)
                ]
        points.sort()
        self._points = [point for point, _ in points]
        self._owners = [owner for _, owner in points]

    def home(self, key: bytes) -> int:
        """The member that a key belongs to. O(log n)."""
        found = bisect(self._points, position(key))
        return self._owners[found if found < len(self._owners) else 0]

    def walk(self, key: bytes) -> Iterator[int]:
        """The same, and then the members after it, each once."""
        owners = self._owners
        start = bisect(self._points, position(key))
        seen = set()
        for at in range(start, start + len(owners)):
            owner = owners[at % len(owners)]
            if owner not in seen:
                seen.add(owner)
                yield owner


class Rings:
    """Rings of the tuples last used; a ring holds its tuple, so its identity is not given to another."""

    __slots__ = ("_last", "_rings")

    def __init__(self) -> None:
        self._last: Ring | None = None
        self._rings: dict[int, Ring] = {}

    def find(self, members: tuple[Member, ...]) -> Ring:
        ring = self._last
        if ring is not None and ring.members is members:
            return ring
        ring = self._rings.get(id(members))
        if ring is None:
            while len(self._rings) >= RINGS:
                del self._rings[next(iter(self._rings))]
            ring = self._rings[id(members)] = Ring(members)
        self._last = ring
        return ring
