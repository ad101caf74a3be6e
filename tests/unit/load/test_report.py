"""What becomes of measurements: medians, verdicts and the rendered page."""

from typing import Any

import pytest

from bench import render
from bench.cases import CASES, Case, Kind
from bench.run import judge, summarise


def case(name: str) -> Case:
    return next(each for each in CASES if each.name == name)


def found(figure: float, *, kind: Kind = Kind.CPU, **faults: int) -> dict[str, Any]:
    key = "broker_cpu_us_per_message" if kind is Kind.CPU else "pss_bytes_per_connection"
    return {key: figure, "drops": 0, "repeats": 0, "refused": 0, "disconnects": 0} | faults


@pytest.mark.parametrize("ours, passed", [(2.0, True), (2.5, True), (2.6, False)])
def test_a_limit_is_a_ratio_to_mosquitto(ours: float, passed: bool) -> None:
    verdict = judge(case("pairs-0"), {"tidegate": found(ours), "mosquitto": found(10.0)})
    assert verdict == {"ratio": ours / 10.0, "passed": passed}


def test_a_cheap_message_that_was_lost_does_not_pass() -> None:
    verdict = judge(case("pairs-0"), {"tidegate": found(0.1, drops=1), "mosquitto": found(10.0)})
    assert verdict["passed"] is False


def test_without_mosquitto_there_is_no_verdict_about_cpu() -> None:
    assert judge(case("pairs-0"), {"tidegate": found(1.0)}) == {"ratio": None, "passed": None}


def test_a_disturbed_measurement_is_not_judged_unless_messages_were_lost() -> None:
    busy = found(1.0) | {"disturbance": 0.4}
    assert judge(case("pairs-0"), {"tidegate": busy, "mosquitto": found(10.0)})["passed"] is None
    assert (
        judge(case("pairs-0"), {"tidegate": busy | {"drops": 1}, "mosquitto": found(10.0)})["passed"] is False
    )


@pytest.mark.parametrize("ours, passed", [(6144.0, True), (6145.0, False)])
def test_memory_has_a_limit_in_bytes(ours: float, passed: bool) -> None:
    verdict = judge(case("idle"), {"tidegate": found(ours, kind=Kind.MEMORY)})
    assert verdict["passed"] is passed


def test_a_lost_client_fails_the_hold() -> None:
    assert judge(case("hold"), {"tidegate": found(0.0, disconnects=1)})["passed"] is False
    assert judge(case("hold"), {"tidegate": found(0.0)})["passed"] is True


def run(cpu: float, drops: int = 0) -> dict[str, Any]:
    counts = {"sent": 10, "expected": 10, "received": 10 - drops, "drops": drops}
    return {"broker_cpu_us_per_message": cpu, "repeats": 0, "refused": 0, "disconnects": 0, **counts}


def test_a_summary_takes_medians_of_figures_and_sums_of_faults() -> None:
    summary = summarise([run(1.0), run(9.0, drops=2), run(2.0, drops=1)])
    assert summary["broker_cpu_us_per_message"] == 2.0
    assert (summary["sent"], summary["drops"]) == (30, 3)


def test_the_page_shows_figures_ratio_limit_and_verdict() -> None:
    both = {name: {"median": summarise([run(cpu)])} for name, cpu in (("tidegate", 1.5), ("mosquitto", 6.0))}
    load = {"window": 2000, "inflight": 100, "payload_bytes": 64, "subscribers": 10}
    row = {"name": "pairs-0", "title": "QoS 0", "mode": "pairs", "kind": "cpu", "limit": 0.25, "load": load}
    report = {
        "date": "2030-01-02T03:04:05+00:00",
        "commit": "0123456789abcdef",
        "is_modified": True,
        "command": "python bench/run.py",
        "repeats": 3,
        "machine": {"cpu": "Abacus", "cores": 2, "kernel": "6"},
        "pinned": True,
        "versions": {"tidegate": "1", "mosquitto": "2"},
        "broker_settings": {"tidegate": "t", "mosquitto": "m"},
        "cases": [row | {"brokers": both, "ratio": 0.25, "passed": True}],
    }
    text = render.page(report)
    assert "| QoS 0 | 1.50 | 6.00 | 0.25 | 0.25 | ✅ |" in text
    assert "0123456789ab with local changes" in text
    assert "at most 2000 messages" in text
