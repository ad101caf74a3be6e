"""Every policy by name, the vectors of the thesis, and what earliest_finish promises."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow import SHARED, SharedPolicy, shared_policy
from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import (
    ClientLoad,
    EarliestFinish,
    LeastInflight,
    Member,
    Ordering,
    RandomMember,
    RoundRobin,
    Sticky,
    Thesis,
    hash_client,
    hash_topic,
)
from tidegate.flow.shared.timetable import Timetable

NAMES = "random round_robin sticky hash_client hash_topic least_inflight thesis earliest_finish"


def group(count: int, now: float = 0.0) -> tuple[Member, ...]:
    return tuple(Member(f"member-{number}", ClientLoad(now), now) for number in range(count))


def report(queue_length: int, ms: float, count: int | None = None, processed: int | None = None) -> LoadReport:
    return LoadReport(queue_length=queue_length, processing_time=ms / 1000, count=count, processed=processed)


def pick(
    policy: SharedPolicy, members: tuple[Member, ...], now: float, *, topic: bytes = b"t", publisher: str = "p"
) -> int:
    """Choose and send, as the broker does at QoS 0."""
    chosen = policy.choose(members, topic, publisher, now, Random(1))
    if policy.is_counting:
        members[chosen].on_sent(now)
    return chosen


def test_all_policies_of_the_design_are_registered() -> None:
    assert set(SHARED) == set(NAMES.split())


@pytest.mark.parametrize("name", sorted(SHARED))
@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_policy_answers_for_any_group_whatever_its_members_tell(name: str, count: int) -> None:
    random = Random(count)
    policy = shared_policy(name)()
    members = group(count)
    now = 0.0
    for _ in range(500):
        now += random.expovariate(100.0)
        chosen = policy.choose(members, b"t/%d" % random.randrange(9), "p", now, random)
        assert 0 <= chosen < len(members)
        members[chosen].on_sent(now, random.randrange(3))
        load = random.choice(members).load
        if random.random() < 0.3:
            load.on_done(now, random.randrange(1, 4))
        if random.random() < 0.05:
            load.on_report(now, report(random.randrange(5), random.random() * 50))
        if random.random() < 0.02:  # somebody leaves, somebody joins
            members = (*members[1:], Member(str(now), ClientLoad(now), now))


def test_round_robin_takes_turns_also_when_the_group_shrinks() -> None:
    policy = RoundRobin()
    assert [pick(policy, group(3), 0.0) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert [pick(policy, group(2), 0.0) for _ in range(3)] == [0, 1, 0]


def test_the_random_policy_reaches_everybody_and_repeats_with_its_seed() -> None:
    def draw(seed: int) -> list[int]:
        policy, random, members = RandomMember(), Random(seed), group(3)
        return [policy.choose(members, b"t", "p", 0.0, random) for _ in range(300)]

    assert draw(7) == draw(7)
    assert min(Counter(draw(7)).values()) > 50


def test_sticky_stays_with_its_member_until_that_leaves() -> None:
    policy = Sticky()
    members = group(4)
    first = pick(policy, members, 0.0)
    assert {pick(policy, members, 0.0) for _ in range(10)} == {first}
    moved = (Member("new", ClientLoad()), *members)
    assert moved[pick(policy, moved, 0.0)] is members[first]
    rest = tuple(member for member in moved if member is not members[first])
    second = pick(policy, rest, 0.0)
    assert {pick(policy, rest, 0.0) for _ in range(10)} == {second}


def test_hashing_by_publisher_and_topic_is_constant_and_moves_few_keys_when_a_member_leaves() -> None:
    members = group(10)
    for policy, arguments in ((hash_client(), "publisher"), (hash_topic(), "topic")):

        def owner(among: tuple[Member, ...], key: str, policy=policy, arguments=arguments) -> str:
            given = {"publisher": key} if arguments == "publisher" else {"topic": key.encode()}
            return among[pick(policy, among, 0.0, **given)].key

        keys = [f"sensor/{number}" for number in range(2000)]
        before = {key: owner(members, key) for key in keys}
        assert before == {key: owner(members, key) for key in keys}
        assert min(Counter(before.values()).values()) > 100
        rest = members[:4] + members[5:]
        after = {key: owner(rest, key) for key in keys}
        assert all(after[key] == before[key] for key in keys if before[key] != members[4].key)


def thesis_member(key: str, t_s: float, t_r: float, m_q: int, m_s: int, ms: float) -> Member:
    load = ClientLoad(0.0)
    load.on_report(t_r, report(m_q, ms))
    for _ in range(m_s):
        load.on_sent(t_r)
    return Member(key, load, t_s)


def test_the_thesis_scores_the_vectors_of_the_specification() -> None:
    a = thesis_member("a", 9.9, 9.0, 2, 3, 50)
    b = thesis_member("b", 9.95, 9.5, 10, 4, 50)
    assert Thesis.score(a, 0.05, 10.0) == pytest.approx(0.1)
    assert Thesis.score(b, 0.05, 10.0) == pytest.approx(-0.15)
    assert Thesis().choose((b, a), b"t", "p", 10.0, Random(1)) == 1


def test_the_thesis_takes_the_mean_of_those_that_know_for_those_that_do_not() -> None:
    known = (thesis_member("a", 0, 1.0, 0, 0, 20), thesis_member("b", 0, 1.0, 0, 0, 40))
    unknown = thesis_member("c", 9.0, 9.9, 10, 0, 0)
    mean = Thesis.group_mean((*known, unknown))
    assert mean == pytest.approx(0.03)
    assert Thesis.score(unknown, mean, 10.0) == pytest.approx(1.0 - (10 * 0.03 - 0.1))
    assert Thesis.group_mean((unknown,)) == 0.0


def test_the_thesis_breaks_ties_by_the_longest_wait_and_then_by_client_id() -> None:
    def member(key: str, t_s: float) -> Member:
        return Member(key, ClientLoad(0.0), t_s)

    policy = Thesis()
    assert policy.choose((member("b", 1.0), member("a", 1.0)), b"t", "p", 2.0, Random(1)) == 1
    assert policy.choose((member("a", 1.0), member("b", 0.5)), b"t", "p", 2.0, Random(1)) == 1


def test_the_thesis_is_round_robin_while_nobody_reports() -> None:
    policy, members = Thesis(), group(3)
    assert [pick(policy, members, 1.0 + number) for number in range(6)] == [0, 1, 2, 0, 1, 2]


def test_the_thesis_leans_towards_the_group_when_reports_stay_away() -> None:
    load = ClientLoad(0.0)
    load.on_report(1.0, report(0, 100))
    load.on_report(2.0, report(1000, 100))
    member = Member("a", load, 2.0)
    fresh, stale = 5.0, 8.0
    assert Thesis.score(member, 0.02, fresh) == pytest.approx(3.0 - (100.0 - 3.0))
    assert Thesis.score(member, 0.02, stale) == pytest.approx(6.0 - (1000 * (0.02 + 0.08 / 2) - 6.0))


def test_least_inflight_counts_messages_and_breaks_ties_by_the_longest_wait() -> None:
    members = group(3)
    for number, sent in enumerate((2, 1, 1)):
        for _ in range(sent):
            members[number].on_sent(1.0 + number, 1)
    assert LeastInflight().choose(members, b"t", "p", 5.0, Random(1)) == 1
    members[0].load.on_done(5.0, 2)
    assert LeastInflight().choose(members, b"t", "p", 5.0, Random(1)) == 0


@pytest.mark.parametrize("count", [3, 10])
def test_earliest_finish_is_round_robin_and_counts_nothing_while_nobody_tells_anything(count: int) -> None:
    policy, members = EarliestFinish(), group(count)
    assert [pick(policy, members, 1.0) for _ in range(2 * count)] == 2 * list(range(count))
    assert not policy.is_counting


@pytest.mark.parametrize("count", [3, 10])
def test_earliest_finish_notices_within_a_round_who_begins_to_tell(count: int) -> None:
    policy, members = EarliestFinish(), group(count)
    members[1].load.on_report(1.0, report(1000, 25))
    chosen = [pick(policy, members, 1.0 + number / 1000) for number in range(5 * count)]
    assert policy.is_counting
    assert 1 not in chosen


def test_earliest_finish_counts_no_more_when_those_who_told_have_left() -> None:
    policy, members = EarliestFinish(), group(10)
    members[0].load.on_report(1.0, report(0, 25))
    for number in range(20):
        pick(policy, members, 1.0 + number)
    assert policy.is_counting
    for size in (9, 4):
        rest = members[-size:]
        pick(policy, rest, 30.0)
        assert not policy.is_counting
        policy.is_counting = True


@pytest.mark.parametrize("count", [3, 10])
def test_earliest_finish_gives_by_speed_and_backlog(count: int) -> None:
    members = group(count)
    for number, member in enumerate(members):
        member.load.on_report(1.0, report(0, 50 if number == 0 else 25, 10))
    policy = EarliestFinish()
    taken = Counter(pick(policy, members, 1.0) for _ in range(20 * count))
    assert taken[0] == pytest.approx(taken[1] / 2, abs=1.5)


def test_earliest_finish_takes_the_one_that_waits_longest_among_idle_ones() -> None:
    members = group(3)
    for number, member in enumerate(members):
        member.load.on_report(1.0, report(0, 1, 10))
        member.last_sent = 10.0 - number
    assert EarliestFinish().choose(members, b"t", "p", 20.0, Random(1)) == 2


@pytest.mark.parametrize("count", [3, 10])
def test_a_member_without_a_sample_is_probed_with_one_message_at_a_time(count: int) -> None:
    members = group(count)
    for member in members[1:]:
        member.on_sent(0.0, 1)
        member.load.on_done(0.025)
    policy = EarliestFinish()
    taken = []
    for number in range(20):
        taken.append(policy.choose(members, b"t", "p", 1.0 + number / 1000, Random(1)))
        members[taken[-1]].on_sent(1.0 + number / 1000, 1)
    assert taken.count(0) == 1
    members[0].load.on_done(1.02)
    assert policy.choose(members, b"t", "p", 1.021, Random(1)) == 0


def test_a_member_that_tells_nothing_is_taken_to_be_as_fast_as_the_others() -> None:
    members = group(3)
    for member in members[1:]:
        member.load.on_report(1.0, report(0, 25, 10))
    policy = EarliestFinish()
    policy.is_counting = True
    taken = Counter(pick(policy, members, 1.0 + number / 1000) for number in range(30))
    assert all(abs(taken[number] - 10) <= 1 for number in range(3))


@pytest.mark.parametrize("count", [2, 10])
def test_a_member_that_is_overdue_is_not_taken_for_idle(count: int) -> None:
    members = group(count)
    for member in members:
        member.on_sent(0.0, 1)
        member.load.on_done(0.025)
    members[0].on_sent(1.0, 1)  # and never done
    policy = EarliestFinish()
    chosen = []
    for number in range(1, 20):
        now = 1.0 + number / 10
        chosen.append(policy.choose(members, b"t", "p", now, Random(1)))
        members[chosen[-1]].on_sent(now, 1)
        members[chosen[-1]].load.on_done(now + 0.025)
    assert 0 not in chosen


@pytest.mark.parametrize("count", [3, 10])
def test_a_far_member_is_left_alone_while_near_ones_are_sooner(count: int) -> None:
    members = group(count)
    for member in members:
        member.load.on_report(1.0, report(0, 10, 10))
    members[0].load.on_rtt(0.100)
    policy = EarliestFinish()
    assert {pick(policy, members, 2.0 + number / 100) for number in range(50)} == set(range(1, count))
    taken = Counter(pick(policy, members, 3.0) for _ in range(10 * count))
    assert 0 < taken[0] < taken[1]


@given(
    seed=st.integers(0, 10**6), steps=st.lists(st.sampled_from(["send", "done", "report", "wait"]), max_size=60)
)
def test_a_timetable_agrees_with_looking_at_all_members(seed: int, steps: list[str]) -> None:
    random = Random(seed)
    members = group(8)
    for member in members:
        member.load.on_report(0.0, report(0, random.uniform(5, 50), 10, 0))
    table = Timetable(members)
    now = 0.1
    for step in steps:
        load = random.choice(members).load
        if step == "send":
            members[table.earliest(now)].on_sent(now)
        elif step == "report":
            load.on_report(now, report(random.randrange(20), random.uniform(5, 50), 10))
        elif step == "done":
            load.on_sent(now, 1)
            load.on_done(now)
        else:
            now += random.random() / 10
        for _ in members:  # one round finds whatever was not announced
            table.earliest(now)
        found = members[table.earliest(now)].load.free_at
        assert found == min(member.load.free_at for member in members)


def keyed(members: tuple[Member, ...], key: bytes, policy: EarliestFinish, now: float) -> Member:
    return members[pick(policy, members, now, topic=key)]


def test_with_ordering_keys_a_key_stays_with_its_member_until_that_is_overloaded() -> None:
    members = group(5)
    for member in members:
        member.load.on_report(0.0, report(0, 10, 10))
    policy = EarliestFinish(ordering=Ordering.TOPIC)
    homes = {key: keyed(members, key, policy, 1.0 + n) for n, key in enumerate((b"a", b"b", b"c", b"d"))}
    for number in range(40):
        for key, home in homes.items():
            assert keyed(members, key, policy, 10.0 + number) is home
    home = homes[b"a"]
    home.load.on_report(100.0, report(500, 10, 10))
    elsewhere = {keyed(members, b"a", policy, 100.0 + number / 100) for number in range(5)}
    assert len(elsewhere) == 1 and home not in elsewhere
    assert keyed(members, b"a", policy, 200.0) is home


def test_a_hot_key_is_spread_rather_than_left_to_overwhelm_its_member() -> None:
    members = group(5)
    for member in members:
        member.load.on_report(0.0, report(0, 10, 10))
    policy = EarliestFinish(ordering=Ordering.PUBLISHER)
    now = 1.0
    worst = 0.0
    for _ in range(2000):
        now += 0.0025  # four fifths of what all five can do, from one publisher
        pick(policy, members, now)
        worst = max(worst, *(member.load.backlog(now) for member in members))
    assert worst < 0.15


def test_a_bound_below_the_mean_is_refused() -> None:
    with pytest.raises(ValueError, match="bound"):
        EarliestFinish(bound=0.5)
