"""Figures of E5.1 to E5.4 and E5.6: waits over a run, and the mean of each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.lab.experiment import Figure
from tidegate.lab.shared.variants import OURS, OURS_PAHO, RANDOM, ROUND_ROBIN, THESIS
from tidegate.lab.shared.waits import BIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LINES = (ROUND_ROBIN, RANDOM, THESIS, OURS, OURS_PAHO)
TITLES = {"simulated": "simulated", "sockets": "over sockets"}


def figures(report: dict[str, Any], rows: dict[tuple[str, str, str], dict[str, Any]]) -> list[Figure]:
    found = []
    for scenario in report["parameters"]["scenarios"]:
        name = scenario.removeprefix("E5.").replace(" ", "-").replace(".", "-")
        found.append(
            Figure(
                name=f"waits-{name}",
                text=f"{scenario}: mean wait over the number of the message, five rules, simulated and over sockets",
                draw=lambda canvas, scenario=scenario: _waits(canvas, rows, scenario),  # type: ignore[misc]
            )
        )
    if any(scenario == "E5.2" for scenario in report["parameters"]["scenarios"]):
        found.append(
            Figure(
                name="phases",
                text="E5.2: mean wait of every phase of the ping timers, in order, thesis and earliest finish",
                draw=lambda canvas: _phases(canvas, report["seeds"]),
            )
        )
    return found


def _waits(canvas: Canvas, rows: dict[tuple[str, str, str], dict[str, Any]], scenario: str) -> None:
    canvas.set_size_inches(10.0, 4.5)
    places = [where for where in TITLES if (where, scenario, THESIS.name) in rows]
    every = canvas.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for axes, where in zip(every, places, strict=True):
        for variant in LINES:
            line = rows[where, scenario, variant.name]["trace"]
            axes.plot(
                [(index + 0.5) * BIN for index in range(len(line))],
                [None if wait is None else max(wait, 0.01) for wait in line],
                label=variant.name,
                linewidth=1.4,
            )
        axes.set_yscale("log")
        axes.set_title(f"{scenario}, {TITLES[where]}")
        axes.set_xlabel("message")
    every[0].set_ylabel(f"mean wait of {BIN} messages, all phases, ms")
    every[-1].legend()


def _phases(canvas: Canvas, seeds: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    marks = {"simulated": "--", "sockets": "-"}
    for number, variant in enumerate((THESIS, OURS, OURS_PAHO)):
        for row in seeds:
            if row["scenario"] == "E5.2" and row["variant"] == variant.name:
                means = sorted(row["values"]["mean"])
                share = [(index + 0.5) / len(means) for index in range(len(means))]
                axes.plot(
                    share,
                    means,
                    marks[row["where"]],
                    color=f"C{number}",
                    marker=".",
                    label=f"{variant.name}, {TITLES[row['where']]}",
                )
    axes.set_yscale("log")
    axes.set_xlabel("share of phases")
    axes.set_ylabel("mean wait of a phase, ms")
    axes.legend()
