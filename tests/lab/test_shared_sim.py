"""Paper 5 on the virtual clock: direction and tolerance of what the results state."""

import json
from pathlib import Path

import pytest

from tests.lab.conftest import Run
from tidegate.lab.events import EventFile
from tidegate.lab.experiment import Context, Part, Verdict
from tidegate.lab.registry import find
from tidegate.lab.run import run
from tidegate.lab.shared.interval_page import is_dominated
from tidegate.lab.shared.record import SharedEvent


def test_e51_rules_that_know_the_load_are_as_good_as_round_robin_among_equals(quick: Run) -> None:
    report, page = quick("e5.1", Part.SIM)
    rows = {row["variant"]: row for row in report["summary"]}
    for variant in ("thesis", "earliest finish", "earliest finish, QoS 1"):
        assert rows[variant]["worst"] <= rows["round robin"]["mean"] + 1.0
    assert rows["random"]["mean"] > 10.0
    assert {claim.verdict for claim in page.claims} == {Verdict.HOLDS}


def test_e52_one_slow_member_is_what_both_rules_are_for(quick: Run) -> None:
    report, page = quick("e5.2", Part.SIM)
    rows = {row["variant"]: row for row in report["summary"] if row["scenario"] == "E5.2"}
    assert rows["round robin"]["mean"] == pytest.approx(1542, rel=0.01)
    assert rows["thesis"]["mean"] <= 0.03 * rows["round robin"]["mean"]
    split = [row["processed"] for row in rows["thesis"]["stable"]]
    assert all(abs(got - said) <= 3 for got, said in zip(split, (199, 199, 102), strict=True))
    for variant in ("earliest finish", "earliest finish, QoS 1"):
        assert rows[variant]["mean"] <= 8.0
        assert rows[variant]["worst"] <= 15.0
        assert rows[variant]["start_worst"] <= 100.0
    for variant in ("sticky", "hash, publisher", "hash, topic"):
        assert rows[variant]["mean"] > rows["round robin"]["mean"]
    tables = {table.title: table for table in page.tables}
    stable = tables["E5.2, simulated: messages 500 to 1000 as in Tables 7 and 8, ms"]
    assert stable.rows[5][6:] == [
        "102",
        "13",
        "71",
        "34.8",
        "17.8",
    ]  # what the thesis says of its slow member
    assert {figure.name for figure in page.figures} == {"waits-2", "waits-2-at-10-ms", "phases"}


@pytest.mark.parametrize("experiment", ["e5.3", "e5.4", "e5.6"])
def test_earliest_finish_waits_less_than_the_thesis(quick: Run, experiment: str) -> None:
    report, page = quick(experiment, Part.SIM)
    rows = {row["variant"]: row for row in report["summary"]}
    for variant in ("earliest finish", "earliest finish, QoS 1"):
        assert rows[variant]["mean"] <= rows["thesis"]["mean"]
    assert all(claim.verdict is Verdict.HOLDS for claim in page.claims)


def test_e55_event_driven_reports_are_better_than_any_interval(quick: Run) -> None:
    report, _ = quick("e5.5", Part.SIM)
    thesis = [row for row in report["summary"] if row["variant"] == "thesis"]
    events = [row for row in report["summary"] if row["variant"] == "earliest finish"]
    assert (len(thesis), len(events)) == (6, 7)
    assert all(is_dominated(row, events) for row in thesis)
    assert not any(is_dominated(row, thesis) for row in events)


def test_distance_and_order_are_known_to_the_rule(quick: Run) -> None:
    report, page = quick("distance-order", Part.SIM)
    assert all(claim.verdict is Verdict.HOLDS for claim in page.claims)
    order = {(row["interval"], row["policy"]): row for row in report["order"]}
    assert order[0.02, "hash, topic"]["beside"] == 0.0
    assert order[0.02, "no keys"]["beside"] > 10.0 * order[0.02, "keys, bound 1.25"]["beside"]


def test_events_have_the_fields_of_the_specification(tmp_path: Path) -> None:
    [(paper, experiment)] = find("e5.3")
    with EventFile(tmp_path / "events.jsonl") as events:
        run(paper, experiment, Context(seeds=1, only=Part.SIM, record=events.write), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert len(lines) == 9 * 1457  # rules and messages
    assert all(list(line) == list(SharedEvent.__dataclass_fields__) for line in lines)
    scored = {line["policy"] for line in lines if line["score"] is not None}
    assert scored == {"thesis", "earliest_finish"}
    for line in lines:
        assert line["t_created"] <= line["t_selected"] <= line["t_dequeued"] <= line["t_done"]
