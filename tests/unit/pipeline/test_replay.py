"""Decisions made by the policies themselves, written as the recorder writes them, and run again."""

from __future__ import annotations

import dataclasses
import json
from random import Random
from typing import Any

import pytest

from tidegate import flow
from tidegate.flow.backoff import AdaptiveSettings, IdentityTable, Load, Mode, Prior
from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, Member
from tidegate.pipeline.replay import gate, members
from tidegate.pipeline.replay.gate import GateReplay
from tidegate.pipeline.replay.members import MemberReplay

Row = dict[str, Any]
ADAPTIVE = AdaptiveSettings(floor_rate=0.0)


def rows_with(columns: tuple[str, ...], events: list[Row]) -> list[Row]:
    """Numbered, with all columns, as they come from the lake."""
    return [dict.fromkeys(columns) | {"seq": seq} | event for seq, event in enumerate(events, 1)]


def gate_events(name: str, mode: str, load: str) -> list[Row]:
    """Twenty publishers, of which some flood, some come back under another name, and ranks that are asked for."""
    rng = Random(11)
    options = {"n": 4, "margin": 1.0} if name == "paper" else {"settings": dataclasses.asdict(ADAPTIVE)}
    detail = {
        "backoff": {"name": name, "mode": mode, "options": options},
        "priority": {"name": "ageing", "options": {"patience": 0.5}},
    }
    made = flow.backoff_policy(name)
    policy = made(**options, mode=Mode(mode)) if name == "paper" else made(ADAPTIVE, mode=Mode(mode))
    policy.load = Load[load]
    table = IdentityTable(policy)
    priority = flow.priority_policy("ageing")(patience=0.5)
    events: list[Row] = [{"kind": "policy", "t": 0.0, "load": load, "detail": json.dumps(detail)}]
    numbers: dict[int, int] = {}
    publishers = {}
    now = 1.0
    for n in range(20):
        prior = Prior(rate=2.0, dispersion=0.5, limit=40.0, rank=3) if n % 4 == 0 else None
        publisher = table.open(f"c{n}", "", f"10.0.0.{n}", now, prior)
        number = numbers.setdefault(id(publisher), len(numbers) + 1)
        publishers[n] = (publisher, number)
        events.append(
            {
                "kind": "open",
                "t": now,
                "client_id": f"c{n}",
                "user": "",
                "address": f"10.0.0.{n}",
                "publisher": number,
                "prior_rate": prior and prior.rate,
                "prior_dispersion": prior and prior.dispersion,
                "limit": prior and prior.limit,
                "prior_rank": prior and prior.rank,
            }
        )
    for step in range(3_000):
        now += rng.expovariate(40.0)
        n = rng.randrange(20) if step < 1_000 or step % 3 else 7  # one of them begins to flood
        publisher, number = publishers[n]
        count = rng.choice((1, 1, 1, 5))
        events.append(
            {
                "kind": "observe",
                "t": now,
                "client_id": f"c{n}",
                "user": "",
                "publisher": number,
                "count": count,
                "bytes": 60 * count,
                "d_f": publisher.observe(now, count, 60 * count),
                "fr_avg": publisher.trained_rate,
            }
        )
        if step % 50 == 0:
            rate = publisher.likely_rate
            priority.update(publisher.key, rate)
            who = {"client_id": f"c{n}", "user": "", "t": now}
            events.append(who | {"kind": "rate", "rate": rate})
            events.append(who | {"kind": "rank", "rank": priority.rank(publisher.key)})
            events.append(who | {"kind": "rank", "place": priority.key(publisher.key, now)})
        if step == 1_500:
            policy.load = Load.HIGH
            events.append({"kind": "load", "t": now, "load": "HIGH"})
    return events


def replay_gate(rows: list[Row]) -> GateReplay:
    replay = GateReplay()
    for row in rows:
        replay.feed(row)
    return replay


@pytest.mark.parametrize("name", ["paper", "adaptive"])
@pytest.mark.parametrize("mode", ["backpressure", "drop"])
def test_verdicts_and_ranks_run_again_are_the_same(name: str, mode: str) -> None:
    rows = rows_with(gate.COLUMNS, gate_events(name, mode, "LOW"))
    found = replay_gate(rows).findings
    assert found.events == len(rows)
    assert found.compared > 6_000
    assert (found.differences, found.notes) == ([], [])
    assert any(row["d_f"] for row in rows)


def test_a_verdict_that_was_another_is_named() -> None:
    rows = rows_with(gate.COLUMNS, gate_events("adaptive", "backpressure", "LOW"))
    at = next(row for row in rows if row["kind"] == "observe" and row["d_f"])
    at["d_f"] += 1e-12
    (only,) = replay_gate(rows).findings.differences
    assert (only.seq, only.kind, only.name, only.client_id) == (at["seq"], "observe", "d_f", at["client_id"])


def test_what_depends_on_missing_events_is_not_compared() -> None:
    rows = rows_with(gate.COLUMNS, gate_events("adaptive", "backpressure", "LOW"))
    found = replay_gate(rows[:100] + rows[101:]).findings
    assert found.differences == []
    assert "missing" in found.notes[0]
    middle = replay_gate(rows[10:]).findings
    assert (middle.compared, middle.differences) == (0, [])
    assert "middle" in middle.notes[0]


def member_events(name: str) -> list[Row]:
    """Six members, reports, acknowledgements, one that leaves and one that joins with a prior."""
    rng = Random(12)
    policy = flow.shared_policy(name)()
    loads: dict[str, ClientLoad] = {}
    group: tuple[Member, ...] = ()
    events: list[Row] = [{"kind": "group", "t": 0.0, "policy": name, "detail": "{}"}]

    def join(key: str, now: float) -> None:
        nonlocal group
        loads[key] = ClientLoad(now)
        events.append({"kind": "forget", "t": now, "client_id": key})
        if key == "m6":
            loads[key].prime(0.03)
            events.append({"kind": "prior", "t": now, "client_id": key, "service": 0.03})
        group = (*group, Member(key, loads[key], now))
        events.append({"kind": "join", "t": now, "client_id": key})

    for n in range(6):
        join(f"m{n}", 0.1 * n)
    now = 1.0
    for step in range(2_000):
        now += 0.01
        place = policy.choose(group, b"jobs/1", "p", now, rng)
        chosen = group[place]
        load = chosen.load
        events.append(
            {
                "kind": "choose",
                "t": now,
                "client_id": chosen.key,
                "topic": "jobs/1",
                "publisher": "p",
                "place": place,
                "members": len(group),
                "m_q": load.queue_length,
                "m_s": load.sent_since_report,
                "t_p": load.mean_time,
                "service": load.service,
            }
        )
        qos = 1 if step % 2 else 0
        chosen.on_sent(now, qos)
        events.append({"kind": "sent", "t": now, "client_id": chosen.key, "qos": qos})
        if step % 7 == 0 and load.awaiting:
            load.on_done(now, 1, None)
            events.append({"kind": "done", "t": now, "client_id": chosen.key, "count": 1, "left": None})
        if step % 11 == 0:
            report = LoadReport(
                queue_length=rng.randrange(5),
                processing_time=rng.uniform(0.01, 0.05),
                count=3,
                processed=step,
            )
            load.on_report(now, report)
            events.append(
                {
                    "kind": "report",
                    "t": now,
                    "client_id": chosen.key,
                    "m_q": report.queue_length,
                    "t_p": report.processing_time,
                    "count": report.count,
                    "processed": report.processed,
                }
            )
        if step % 97 == 0:
            load.on_rtt(0.02)
            events.append({"kind": "rtt", "t": now, "client_id": chosen.key, "rtt": 0.02})
        if step == 1_000:
            group = tuple(member for member in group if member.key != "m2")
            events.append({"kind": "leave", "t": now, "client_id": "m2"})
            join("m6", now)
    for event in events:
        event |= {"group": "g", "topic_filter": "jobs/#"}
    return events


def replay_members(rows: list[Row]) -> MemberReplay:
    replay = MemberReplay()
    for row in rows:
        replay.feed(row)
    return replay


@pytest.mark.parametrize("name", sorted(set(flow.SHARED) - members.BY_CHANCE))
def test_choices_run_again_are_the_same(name: str) -> None:
    rows = rows_with(members.COLUMNS, member_events(name))
    found = replay_members(rows).findings
    assert found.compared == 6 * 2_000
    assert (found.differences, found.notes) == ([], [])


def test_a_choice_that_was_another_is_named() -> None:
    rows = rows_with(members.COLUMNS, member_events("earliest_finish"))
    at = [row for row in rows if row["kind"] == "choose"][500]
    at["place"] = (at["place"] + 1) % at["members"]
    found = replay_members(rows).findings
    assert found.differences[0].seq == at["seq"]
    assert found.differences[0].name == "place"


@pytest.mark.parametrize("name", sorted(members.BY_CHANCE))
def test_chance_is_not_compared(name: str) -> None:
    found = replay_members(rows_with(members.COLUMNS, member_events(name))).findings
    assert (found.compared, found.differences) == (0, [])
    assert "chance" in found.notes[0]
