"""Paper 5 over sockets: small runs, judged by exact counts and by direction."""

import pytest

from tests.lab.conftest import Run
from tidegate.lab.experiment import Part
from tidegate.lab.shared import cost_real, real
from tidegate.lab.shared.scenarios import SCENARIOS
from tidegate.lab.shared.variants import OURS, OURS_PAHO, ROUND_ROBIN, THESIS, Slot
from tidegate.lab.shared.waits import values


@pytest.mark.serial
def test_earliest_finish_beats_round_robin_and_no_message_is_lost() -> None:
    variants = (ROUND_ROBIN, THESIS, OURS, OURS_PAHO)
    scenario = SCENARIOS["E5.2"].until(4.0)
    slots = [Slot.of(scenario, variant, 0, 1, 1.0) for variant in variants]
    measured, machine = real.measure("E5.2", slots, 4.0, tries=1)
    means = {}
    for group in measured:
        assert (group.lost, group.doubled, group.waiting) == (0, 0, 0)
        assert len(group.handled) == len(scenario.times)
        means[group.slot.variant] = values(group.handled, 3)["mean"]
    for variant in (OURS, OURS_PAHO):
        assert means[variant.name] < 0.5 * means[ROUND_ROBIN.name]
    told = {group.slot.variant: group for group in measured}
    assert told[ROUND_ROBIN.name].control_bytes == 0
    assert told[OURS_PAHO.name].control_bytes == 4 * len(scenario.times)
    for variant in (THESIS, OURS):
        assert told[variant.name].reports >= 9
        assert told[variant.name].control_bytes > 40 * told[variant.name].reports
    assert machine.broker_cpu > 0.0


def test_e56_members_that_join_and_leave_lose_nothing(quick: Run) -> None:
    report, page = quick("e5.6", Part.REAL)
    rows = {row["variant"]: row for row in report["summary"]}
    assert all(row["lost"] == 0 for row in rows.values())
    # The fourth joins after five of the six seconds.
    assert all(row["member_means"][3] is not None for row in rows.values())
    assert len(page.tables) == 2


@pytest.mark.serial
def test_the_brokers_time_for_a_message_can_be_measured() -> None:
    row = cost_real.measure("earliest_finish", 10, 0.5)
    assert row["lost"] == 0
    assert row["messages"] == 1000
    assert row["us"] > 0.0
