"""Paper 1 over sockets, beside Mosquitto: small runs of real brokers, judged by direction only."""

import pytest

from tests.lab.conftest import Run
from tidegate.lab.experiment import Part


def test_e11_brokers_over_sockets_save_what_the_simulator_says(quick: Run) -> None:
    report, _ = quick("e1.1", Part.REAL)
    rows = {(row["workload"], row["broker"]): row for row in report["real"]}
    for workload in ("spec", "attack"):
        for broker in ("Mosquitto", "off", "paper", "adaptive"):
            row = rows[workload, broker]
            # The broker's own counter and the publishers' count of what was accepted are the same thing.
            assert row["bytes_counter"]["mean"] == pytest.approx(row["bytes"]["mean"], rel=0.05)
    for policy in ("paper", "adaptive"):
        assert rows["attack", policy]["saving"]["mean"] == pytest.approx(
            rows["attack", policy]["simulated_saving"]["mean"], abs=0.2
        )
    assert rows["spec", "adaptive"]["saving"]["mean"] < 0.05 < rows["attack", "adaptive"]["saving"]["mean"]
    assert rows["spec", "paper"]["saving"]["mean"] > 0.02


def test_e12_back_off_costs_no_memory(quick: Run) -> None:
    report, _ = quick("e1.2")
    rows = {(row["load"], row["broker"]): row for row in report["summary"]}
    for load in ("light", "heavy"):
        for broker in ("paper", "adaptive"):
            ratio = rows[load, broker]["rss_bytes"]["mean"] / rows[load, "off"]["rss_bytes"]["mean"]
            assert 0.9 < ratio < 1.1
    assert rows["light", "adaptive"]["lost"]["mean"] == 0
    assert rows["light", "adaptive"]["cpu_share"]["mean"] < 0.2


def test_e13_rare_messages_arrive_while_brokers_are_busy(quick: Run) -> None:
    report, _ = quick("e1.3", Part.REAL)
    for row in report["real"]:
        assert row["lost"]["max"] == 0
        assert row["count"]["min"] > 10
        assert row["utilisation"]["mean"] > 0.4
