"""Paper 1 on the virtual clock: direction and tolerance of every number that the results state."""

from tests.lab.conftest import Run
from tidegate.lab.experiment import Part, Verdict


def test_e11_published_back_off_saves_bytes_only_as_far_as_its_delay_reaches(quick: Run) -> None:
    report, page = quick("e1.1", Part.SIM)
    rows = {(row["workload"], row["publishers"], row["variant"]): row for row in report["summary"]}
    for size in (10, 20, 30, 50, 100):
        assert rows["spec", size, "paper, backpressure"]["saving_read"]["mean"] > 0.0
        for mode in ("hold", "drop"):
            assert rows["spec", size, f"paper, {mode}"]["saving_read"]["mean"] == 0.0
    sweep = {(row["base"], row["pace"]): row["saving_read"]["mean"] for row in report["sweep"]}
    assert abs(sweep[6.0, "blocked"] - 0.16) <= 0.03  # the paper's number, at the paper's example of a rate
    assert sweep[60.0, "blocked"] < 0.03
    assert sweep[60.0, "patient"] == 0.0
    assert report["real"] == []
    assert {claim.verdict for claim in page.claims} >= {Verdict.HOLDS, Verdict.FAILS, Verdict.DIFFERS}


def test_e11_the_published_rule_saves_innocent_bytes_and_the_adaptive_one_does_not(quick: Run) -> None:
    report, _ = quick("e1.1", Part.SIM)
    rows = {(row["workload"], row["publishers"], row["variant"]): row for row in report["summary"]}
    for size in (30, 100):
        paper, ours = (rows["mixed", size, f"{name}, backpressure"] for name in ("paper", "adaptive"))
        assert paper["bytes_saved_innocent"]["mean"] > 0.3 * paper["bytes_saved"]["mean"]
        assert ours["bytes_saved_innocent"]["mean"] <= 0.01 * ours["bytes_saved"]["mean"]
        assert abs(paper["jitter_marked"]["mean"] - 0.5) < 0.1
        assert abs(paper["poisson_marked"]["mean"] - 0.578) < 0.1
        attack = rows["attack", size, "adaptive, backpressure"]["saving_read"]["mean"]
        assert attack > rows["attack", size, "paper, backpressure"]["saving_read"]["mean"]


def test_e13_ageing_serves_the_rare_sender_like_strict_priority_and_nobody_starves(quick: Run) -> None:
    report, _ = quick("e1.3", Part.SIM)
    rows = {(row["model"], row["utilisation"], row["policy"]): row for row in report["summary"]}
    for load in (0.9, 0.95, 1.0, 1.1, 1.2):
        fifo, strict, ageing = (
            rows["lanes", load, name] for name in ("first come", "strict (paper)", "ageing")
        )
        assert ageing["rare_p99"]["mean"] <= 1.1 * strict["rare_p99"]["mean"]
        assert strict["rare_p99"]["mean"] < 0.3 * fifo["rare_p99"]["mean"]
        assert ageing["last_max"]["max"] <= 1.0 + 31 * 0.01 + 1e-6
        # Without preemption the rest of one service, and one's own.
        assert ageing["rare_max"]["max"] <= 0.02 + 1e-6
    assert rows["lanes", 1.2, "strict (paper)"]["last_max"]["mean"] > 5.0


def test_e14_detection_is_as_good_as_the_design_says(quick: Run) -> None:
    report, page = quick("e1.4")
    rows = {(row["variant"], row["family"]): row for row in report["summary"]}
    for family in ("constant", "jitter 5 %", "jitter 20 %", "Poisson"):
        assert rows["adaptive", family]["false_positive_rate"]["mean"] <= 0.01
        assert rows["adaptive", family]["recall"]["mean"] >= 0.9
    assert rows["paper", "Poisson"]["false_positive_rate"]["mean"] > 0.4
    assert rows["adaptive", "drift ×2"]["false_positive_rate"]["mean"] < 0.05
    for attack in ("poisoned training", "new ids, identity table"):
        assert rows["adaptive", attack]["admitted"]["mean"] < 0.2
        assert rows["paper", attack]["admitted"]["mean"] > 0.9
    assert rows["adaptive", "new ids"]["admitted"]["mean"] > 0.9  # what the table is for
    assert len(page.tables) == 6
