"""Paper 4 on the virtual clock, small: direction and tolerance of each claim."""

from typing import Any

import pytest

from tidegate.lab.experiment import Context, Experiment, Part, Verdict
from tidegate.lab.rpc import PAPER, misrouting, overlap, routing, scaling, steps

QUICK = Context(is_quick=True, only=Part.SIM)
SIMULATED = [misrouting, scaling, overlap, routing, steps]


@pytest.mark.parametrize("module", SIMULATED, ids=lambda module: module.EXPERIMENT.name)
def test_a_simulated_experiment_holds(module: Any) -> None:
    experiment: Experiment = module.EXPERIMENT
    page = experiment.present(experiment.run(QUICK))
    assert page.claims and page.tables
    assert [claim.text for claim in page.claims if claim.verdict is not Verdict.HOLDS] == []


def test_the_baseline_is_as_bad_as_predicted() -> None:
    for replicas, devices in ((2, 1), (2, 2), (8, 1)):
        found = misrouting.simulate(replicas, devices, "random", 2000, 1)
        assert abs(found - (1 / replicas) ** devices) < 0.05
    assert misrouting.simulate(1, 2, "round_robin", 500, 1) == 1.0


def test_the_thesis_design_loses_replies_and_ours_does_not() -> None:
    thesis, ours = (overlap.simulate(0.5, design, 1000, 1) for design in ("thesis", "resolved"))
    assert thesis["lost"] > 100 and thesis["wrong"] > 100
    assert (ours["lost"], ours["wrong"]) == (0, 0)


def test_pages_bear_reports_without_a_part() -> None:
    for experiment in PAPER.experiments:
        experiment.present({"parameters": {}})
