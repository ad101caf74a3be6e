"""E5.7: what a choice costs as the group grows.

Ours: at 1000 members at most twice what it costs at three. The thesis's score looks at every member.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

from tidegate.flow import shared_policy
from tidegate.flow.load_report import LoadReport
from tidegate.flow.shared import ClientLoad, Member
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.shared import cost_page, cost_real

SIZES: Final = (3, 10, 100, 1000)
POLICIES: Final = ("round_robin", "random", "hash_topic", "least_inflight", "thesis", "earliest_finish")
LOOKED_AT: Final = 60_000  # members, in one measurement, by a rule that looks at all: some milliseconds
CHOICES: Final = 500
SERVICE: Final = 0.02


def group(policy_name: str, size: int, *, is_acknowledging: bool) -> Callable[[], float]:
    """Measures nanoseconds for one choice and telling the member of it, at full load, and with QoS 1 its end."""
    random = Random(1)
    members = tuple(Member(str(number), ClientLoad()) for number in range(size))
    for member in members:
        if is_acknowledging:
            member.on_sent(0.0, 1)
            member.load.on_done(SERVICE, 1)
        else:
            seconds = SERVICE * (1.0 + 0.05 * random.random())
            report = LoadReport(queue_length=5, processing_time=seconds, count=9, processed=0)
            member.load.on_report(0.0, report)
    policy = shared_policy(policy_name)()
    looks_at_all = policy_name in ("least_inflight", "thesis")
    choices = min(CHOICES, max(LOOKED_AT // size, 20)) if looks_at_all else CHOICES
    qos = 1 if is_acknowledging else 0
    now = 1.0

    def measure() -> float:
        nonlocal now
        began = perf_counter_ns()
        for _ in range(choices):
            now += SERVICE / size
            chosen = policy.choose(members, b"topic", "publisher", now, random)
            member = members[chosen]
            if qos or policy.is_counting:
                member.on_sent(now, qos)
            if qos:
                member.load.on_done(now, 1)
        return (perf_counter_ns() - began) / choices

    return measure


def run(context: Context) -> dict[str, Any]:
    repetitions = 20 if context.is_quick else 150
    data: dict[str, Any] = {
        "parameters": {
            "members": list(SIZES),
            "choices": f"{CHOICES} in a row, {repetitions} times, sizes by turns; the best and the median",
            "load": f"{SERVICE * 1e3:g} ms a message, as many messages as the members can do; all have reported",
        },
        "summary": [],
        "real": [],
        "seeds": [],
    }
    if context.wants(Part.SIM):
        cases = [(name, False) for name in POLICIES] + [("earliest_finish", True)]
        for name, is_acknowledging in context.follow("e5.7", cases):
            groups = [group(name, size, is_acknowledging=is_acknowledging) for size in SIZES]
            # Short and by turns, so that a moment of rest of the machine is one for each.
            found = [[measure() for measure in groups] for _ in range(repetitions)]
            for size, times in zip(SIZES, zip(*found, strict=True), strict=True):
                data["summary"].append(
                    {
                        "policy": name,
                        "members": size,
                        "signal": "acknowledgements" if is_acknowledging else "reports",
                        "best_ns": min(times),
                        "median_ns": median(times),
                    }
                )
    if context.wants(Part.REAL):
        data["parameters"]["broker"] = cost_real.describe()
        data["real"] = cost_real.run(context)
    return data


EXPERIMENT = Experiment(
    name="e5.7-cost",
    title="Cost of a choice",
    question="What does choosing a member cost in groups of 3 to 1000?",
    run=run,
    present=cost_page.present,
)
