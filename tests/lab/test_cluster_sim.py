"""Paper 2 on the virtual clock: direction and tolerance of every number that the results state."""

from tests.lab.conftest import Run
from tidegate.lab.experiment import Verdict


def test_e21_reproduces_the_published_figures(quick: Run) -> None:
    report, page = quick("e2.1")
    rows = {row["variant"]: row for row in report["summary"]}
    paper = rows["paper"]
    assert paper["moves"] == [[34.0, "1", 8, "b1", "b0", False]]
    assert abs(paper["drained"] - 62.0) <= 1.0
    assert (paper["actions"], paper["missed"]) == (1, 0)
    peer = rows["peer"]
    assert peer["first"] == 31.0
    assert peer["actions"] >= 2
    assert rows["peer, topics"]["actions"] == 1
    assert [31.0, "12", 1, "b2", "b0", True] in peer["moves"]
    assert rows["deadline, fair uplink"]["drain"] <= 6.0
    assert (rows["deadline"]["actions"], rows["deadline"]["missed"]) == (0, 0)
    assert {claim.verdict for claim in page.claims} == {Verdict.HOLDS}


def test_e22_the_default_misses_less_with_its_own_placement(quick: Run) -> None:
    _, page = quick("e2.2")
    assert [claim.verdict for claim in page.claims] == [Verdict.HOLDS]


def test_e23_the_published_policy_acts_needlessly_less_than_peer_and_the_default_misses_least(quick: Run) -> None:
    report, _ = quick("e2.3")
    rows = {row["variant"]: row for row in report["summary"] if row["group"] == "all"}

    def mean(variant: str, key: str) -> float:
        return float(rows[variant][key]["mean"])

    assert mean("paper", "needless") < mean("peer", "needless")
    assert mean("deadline", "missed") < min(mean("paper", "missed"), mean("peer", "missed"))
    assert mean("deadline", "actions") <= mean("paper", "actions")
    assert report["oscillations"]["deadline"] == 0


def test_e24_to_e26_help_comes_from_where_there_is_room(quick: Run) -> None:
    for name in ("e2.4", "e2.5", "e2.6"):
        _, page = quick(name)
        assert [claim.verdict for claim in page.claims] == [Verdict.HOLDS], name


def test_e27_the_cost_of_a_look_grows_with_the_cluster_and_no_faster(quick: Run) -> None:
    report, _ = quick("e2.7")
    small, large = report["summary"][0], report["summary"][-1]
    growth = large["subscribers"] / small["subscribers"]
    assert large["deadline_look"] < 4 * growth * small["deadline_look"]
    assert large["paper_moves"] >= 1
    assert large["deadline_moves"] >= 1
