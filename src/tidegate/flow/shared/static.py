"""Rules that know nothing of load."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tidegate.flow.shared.load import Member
from tidegate.flow.shared.ring import Rings


class RoundRobin:
    """Each member in turn."""

    __slots__ = ("_next",)
    is_counting = False

    def __init__(self) -> None:
        self._next = 0

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        chosen = self._next
        if chosen >= len(members):
            chosen = 0
        self._next = chosen + 1
        return chosen


class RandomMember:
    """Uniformly at random."""

    __slots__ = ()
    is_counting = False

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        return int(random.random() * len(members))


class Sticky:
    """One member, drawn at random, gets everything until it leaves."""

    __slots__ = ("_index", "_key")
    is_counting = False

    def __init__(self) -> None:
        self._index = 0
        self._key: str | None = None

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        index = self._index
        if index < len(members) and members[index].key == self._key:
            return index
        for index, member in enumerate(members):  # noqa: B007 - kept on purpose
            if member.key == self._key:
                break
        else:
            index = int(random.random() * len(members))
        self._index = index
        self._key = members[index].key
        return index


class Hashed:
    """All messages of one key to one member; few keys move when members come and go."""

    __slots__ = ("_key", "_rings")
    is_counting = False

    def __init__(self, key: Callable[[bytes, str], bytes]) -> None:
        self._key = key
        self._rings = Rings()

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        return self._rings.find(members).home(self._key(topic, publisher))


def hash_client() -> Hashed:
    """All messages of a publisher to one member."""
    return Hashed(lambda _topic, publisher: publisher.encode())


def hash_topic() -> Hashed:
    """All messages of a topic to one member."""
    return Hashed(lambda topic, _publisher: topic)
