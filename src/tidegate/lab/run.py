"""Runs experiments and keeps what came out: JSON first, then everything that is made of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tidegate.lab import figures, render
from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Context, Experiment, Paper
from tidegate.lab.provenance import provenance


def run(paper: Paper, experiment: Experiment, context: Context, out: Path) -> Path:
    """Run one experiment and write its JSON below `out`; returns the file. Nothing is written if it does not end."""
    header = provenance()
    began = time.monotonic()
    data = experiment.run(context)
    report = {
        "experiment": experiment.name,
        "paper": paper.name,
        "title": experiment.title,
        **header,
        "seconds": round(time.monotonic() - began, 1),
        "is_quick": context.is_quick,
        "only": context.only,
        **data,
    }
    path = out / paper.name / f"{experiment.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"_{path.name}")
    temporary.write_text(dumps(report), encoding="utf-8")
    temporary.rename(path)
    return path


def dumps(report: dict[str, Any]) -> str:
    """Strict JSON with one line for each seed, parameter or case: small, and a difference can be read."""
    parts = []
    for name, value in _finite(report).items():
        if isinstance(value, dict) and value:
            lines = (f"  {json.dumps(key)}: {_compact(each)}" for key, each in value.items())
            text = "{\n" + ",\n".join(lines) + "\n }"
        elif isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {_compact(each)}" for each in value) + "\n ]"
        else:
            text = _compact(value)
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no infinity; what is not finite is unknown there. Seven digits are more than any of this is worth."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def load(paper: Paper, out: Path) -> render.Shown:
    """What was kept of a paper's experiments, in their order; those never run are left out."""
    shown: render.Shown = []
    for experiment in paper.experiments:
        path = out / paper.name / f"{experiment.name}.json"
        if not path.exists():
            continue
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            hint = f"run it again: tidegate lab run {experiment.name}"
            raise LabError(f"{path} is not JSON: {error}", hint) from None
        shown.append((experiment, report, experiment.present(report)))
    return shown


def verdicts(paper: Paper, names: Collection[str], out: Path) -> list[str]:
    """A line for each claim of these experiments: how it fared, and the numbers."""
    return [
        f"{experiment.name}: {render.MARKS[claim.verdict]}: {claim.text} (paper: {claim.paper}; ours: {claim.ours})"
        for experiment, _, presentation in load(paper, out)
        if experiment.name in names
        for claim in presentation.claims
    ]


def write_pages(paper: Paper, out: Path) -> list[Path]:
    """Render a paper's Markdown, HTML and figures from the JSON below `out`; none if nothing was run."""
    shown = load(paper, out)
    if not shown:
        return []
    folder = out / paper.name
    drawings: dict[str, str] = {}
    written: list[Path] = []
    for experiment, _, presentation in shown:
        for figure in presentation.figures:
            name = f"{experiment.name}-{figure.name}"
            drawings[name] = figures.draw(figure, folder / f"{name}.png")
            written.append(folder / f"{name}.png")
    for name, text in (
        ("README.md", render.markdown(paper, shown)),
        ("index.html", render.html(paper, shown, drawings)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written
