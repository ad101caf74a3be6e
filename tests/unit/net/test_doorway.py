"""Places for connections that are not clients yet: who gives way, and that the sums are right whatever comes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidegate.net.doorway import Doorway, site_of


class Link:
    """A transport, and the connection on it."""

    def __init__(self, door: Doorway, host: str, port: int) -> None:
        self.door = door
        self.facts: dict[str, Any] = {"peername": (host, port)}
        self.is_aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.facts.get(name, default)

    def abort(self) -> None:
        self.is_aborted = True
        self.door.leave(self)

    def enter(self, **options: bool) -> Link:
        self.door.enter(self, self, **options)  # type: ignore[arg-type]
        return self


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_who_comes_in_masses_crowds_out_itself() -> None:
    door = Doorway(most=10)
    honest = [Link(door, f"10.0.0.{number}", 1).enter() for number in range(3)]
    crowd = [Link(door, "10.9.9.9", number).enter() for number in range(100)]
    assert not any(each.is_aborted for each in honest)
    assert [each.is_aborted for each in crowd] == [True] * 93 + [False] * 7
    assert not Link(door, "10.0.0.99", 1).enter().is_aborted
    assert crowd[93].is_aborted
    assert (len(door), door.displaced) == (10, 94)


def test_a_site_of_ipv6_is_one() -> None:
    door = Doorway(most=3)
    honest = Link(door, "2001:db8:1::1", 1).enter()
    crowd = [Link(door, f"2001:db8:2::{number}", 1).enter() for number in range(10)]
    assert not honest.is_aborted
    assert sum(each.is_aborted for each in crowd) == 8


@pytest.mark.parametrize(
    ("peer", "site"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("a-name", 5), "a-name"),
        ("", ""),
        (None, ""),
        ((), ""),
    ],
)
def test_what_is_one_site(peer: object, site: str) -> None:
    assert site_of(peer) == site


def test_a_connection_keeps_its_place_and_its_time_from_layer_to_layer() -> None:
    clock = Clock()
    door = Doorway(now=clock)
    header = Link(door, "10.0.0.1", 7).enter()  # the proxy
    clock.time = 6.0
    upgrade = Link(door, "192.0.2.5", 9)  # the client behind it
    upgrade.facts["proxy_peername"] = ("10.0.0.1", 7)
    upgrade.enter()
    door.leave(header)
    connect = Link(door, "192.0.2.5", 9)
    connect.facts["proxy_peername"] = ("10.0.0.1", 7)
    connect.enter()
    door.leave(upgrade)
    assert len(door) == 1 and connect in door
    assert door.expired(10.0) == []
    clock.time = 10.5
    assert door.expired(10.0) == [connect]
    door.stop_clock(connect, is_stopped=True)
    clock.time = 100.0
    assert door.expired(10.0) == []
    door.stop_clock(connect, is_stopped=False)
    assert door.expired(10.0) == []
    clock.time = 110.5
    assert door.expired(10.0) == [connect]


def test_who_waits_for_us_and_who_is_kept_give_way_to_nobody() -> None:
    door = Doorway(most=2)
    waiting = Link(door, "10.0.0.1", 1).enter()
    door.stop_clock(waiting, is_stopped=True)
    operator = Link(door, "10.0.0.1", 2).enter(is_kept=True)
    crowd = [Link(door, "10.0.0.1", number).enter() for number in range(3, 10)]
    assert not waiting.is_aborted and not operator.is_aborted
    assert [each.is_aborted for each in crowd] == [True] * 5 + [False] * 2


def test_the_last_descriptors_are_not_for_newcomers() -> None:
    door = Doorway()
    door.has_descriptors = lambda: len(door) < 5
    crowd = [Link(door, "10.0.0.1", number).enter() for number in range(20)]
    assert sum(not each.is_aborted for each in crowd) == 5
    for each in crowd:
        door.leave(each)
    door.has_descriptors = lambda: False
    assert not Link(door, "10.0.0.1", 99).enter().is_aborted  # there is nobody to give way


def test_who_holds_most_bytes_gives_way() -> None:
    door = Doorway(most_bytes=100)
    small, large, late = (Link(door, f"10.0.0.{number}", 1).enter() for number in range(3))
    door.hold(small, 30)
    door.hold(large, 40)
    door.hold(large, 20, is_framed=True)
    assert door.held_bytes == 90
    door.hold(late, 20)
    assert (small.is_aborted, large.is_aborted, late.is_aborted) == (False, True, False)
    assert door.held_bytes == 50
    door.hold(late, 500)
    assert late.is_aborted
    assert door.held_bytes == 30
    door.hold(late, 500)  # it is gone
    assert door.held_bytes == 30


class Door(RuleBasedStateMachine):
    """Against lists that are counted each time."""

    @initialize(most=st.integers(1, 6))
    def open(self, most: int) -> None:
        self.door = Doorway(most=most, most_bytes=1_000)
        self.links: list[Link] = []
        self.ports = 0
        self.held: Counter[Link] = Counter()
        self.uncounted: set[Link] = set()

    @rule(host=st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2"]), is_kept=st.booleans())
    def come(self, host: str, is_kept: bool) -> None:
        self.ports += 1
        counts = Counter(site_of(each.facts["peername"]) for each in self.counted)
        oldest: dict[str, Link] = {}
        for each in self.counted:
            oldest.setdefault(site_of(each.facts["peername"]), each)
        is_full = len(self.counted) >= self.door.most
        link = Link(self.door, host, self.ports).enter(is_kept=is_kept)
        if is_full and not is_kept:
            gone = [each for each in oldest.values() if each.is_aborted]
            assert len(gone) == 1, "one gives way, and it is the oldest of its site"
            assert counts[site_of(gone[0].facts["peername"])] == max(counts.values())
        self.links.append(link)
        if is_kept:
            self.uncounted.add(link)

    @rule(data=st.data(), size=st.integers(0, 400))
    def hold(self, data: st.DataObject, size: int) -> None:
        if self.there:
            self.door.hold(data.draw(st.sampled_from(self.there)), size, is_framed=data.draw(st.booleans()))

    @rule(data=st.data(), is_stopped=st.booleans())
    def stop(self, data: st.DataObject, is_stopped: bool) -> None:
        if counted := self.counted if is_stopped else []:
            link = data.draw(st.sampled_from(counted))
            self.door.stop_clock(link, is_stopped=True)
            self.uncounted.add(link)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.there:
            link = data.draw(st.sampled_from(self.there))
            self.door.leave(link)
            self.links.remove(link)

    @property
    def there(self) -> list[Link]:
        return [each for each in self.links if not each.is_aborted]

    @property
    def counted(self) -> list[Link]:
        return [each for each in self.there if each not in self.uncounted]

    @invariant()
    def sums_are_right(self) -> None:
        if hasattr(self, "door"):
            assert list(self.door) == self.there
            assert len(self.counted) <= self.door.most
            assert self.door.held_bytes <= 1_000
            assert self.door._fullest == max(
                Counter(site_of(each.facts["peername"]) for each in self.counted).values(), default=0
            )


TestDoor = Door.TestCase
