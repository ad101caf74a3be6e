"""Which member of a shared subscription gets a message."""

from collections import Counter
from itertools import count
from random import Random
from time import monotonic
from typing import cast

import pytest

from tests.bare_core import bare_core
from tidegate.broker.connection import Connection
from tidegate.broker.index import Subscription
from tidegate.broker.session import Session
from tidegate.broker.shared import SharedGroup
from tidegate.flow import RandomMember, RoundRobin, UnknownPolicy, shared_policy
from tidegate.flow.shared import ClientLoad, Member


def member(name: str, *, is_away: bool = False, is_paused: bool = False, is_full: bool = False) -> Session:
    """A session as a group sees it; that it has a connection is all that counts of it."""
    session = Session(bare_core(), name)
    session.conn = None if is_away else cast(Connection, object())
    session.paused = is_paused
    session.is_full = is_full
    return session


def make_group(*members: Session) -> SharedGroup:
    group = SharedGroup("g", b"t", RoundRobin(), Random(1))
    for session in members:
        group.add(Subscription(session, b"t", 1, share="g"))
    return group


def chosen(group: SharedGroup, qos: int) -> str | None:
    found = group.choose(b"t", "publisher", 0.0, qos)
    return None if found is None else found.session.client_id


@pytest.mark.parametrize("qos", [0, 1])
def test_members_take_turns(qos: int) -> None:
    group = make_group(member("a"), member("b"), member("c"))
    assert [chosen(group, qos) for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("reason", ["away", "paused", "full"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_member_that_cannot_take_it_now_is_passed_over(qos: int, reason: str) -> None:
    bad = member("bad", is_away=reason == "away", is_paused=reason == "paused", is_full=reason == "full")
    group = make_group(bad, member("good"))
    assert {chosen(group, qos) for _ in range(4)} == {"good"}


@pytest.mark.parametrize("policy", ["earliest_finish", "least_inflight", "round_robin", "thesis", "random"])
def test_those_who_are_there_share_the_part_of_one_that_left(policy: str) -> None:
    sessions = [member(name) for name in "abcd"]
    group = SharedGroup("g", b"t", shared_policy(policy)(), Random(1))
    for session in sessions:
        group.add(Subscription(session, b"t", 1, share="g"))
    clock = count(monotonic() + 1.0, 0.01)

    def many(number: int) -> Counter[str]:
        found = (group.choose(b"t", "publisher", next(clock), 1) for _ in range(number))
        return Counter(each.session.client_id for each in found if each is not None)

    assert len(many(40)) == 4
    sessions[0].conn = None
    group.changed()
    counts = many(300)
    assert set(counts) == set("bcd")
    assert min(counts.values()) > 60
    sessions[0].conn = sessions[1].conn
    assert sessions[0].load is not None
    sessions[0].load.forget(next(clock))  # as for any client that connects
    group.changed()
    assert "a" in many(300)


def test_a_part_of_a_group_knows_who_left_as_well() -> None:
    sessions = [member(name) for name in "abc"]
    group = make_group(*sessions)
    part = group.restricted(group.members[:2])
    assert {chosen(part, 1) for _ in range(4)} == {"a", "b"}
    sessions[0].conn = None
    group.changed()
    assert {chosen(part, 1) for _ in range(4)} == {"b"}


def test_when_all_are_away_qos_1_waits_for_one_with_room_and_qos_0_is_nobodys() -> None:
    group = make_group(member("full", is_away=True, is_full=True), member("away", is_away=True))
    assert {chosen(group, 1) for _ in range(4)} == {"away"}
    assert chosen(group, 0) is None


def test_a_member_that_subscribes_again_keeps_its_place_and_one_that_leaves_is_gone() -> None:
    first, second = member("first"), member("second")
    group = make_group(first, second)
    group.add(Subscription(first, b"t", 2, share="g"))
    assert [(m.session.client_id, m.qos) for m in group.members] == [("first", 2), ("second", 1)]
    group.remove(group.members[0])
    assert [chosen(group, 1) for _ in range(2)] == ["second", "second"]


def test_the_random_policy_reaches_everybody_and_repeats_with_its_seed() -> None:
    def draw(seed: int) -> list[int]:
        policy, random = RandomMember(), Random(seed)
        members = tuple(Member(name, ClientLoad()) for name in "abc")
        return [policy.choose(members, b"t", "p", 0.0, random) for _ in range(300)]

    assert draw(7) == draw(7)
    assert min(Counter(draw(7))[i] for i in range(3)) > 50


def test_an_unknown_policy_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownPolicy) as caught:
        shared_policy("nearest")
    assert (caught.value.kind, caught.value.name) == ("shared", "nearest")
    assert "round_robin" in str(caught.value)
