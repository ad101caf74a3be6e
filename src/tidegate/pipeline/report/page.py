"""The two forms of a report. The page loads nothing from anywhere: plotly's script is in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any, Final

from tidegate.pipeline.report.gather import Facts, Row
from tidegate.pipeline.report.tables import Section, sections, show
from tidegate.private import make_folder, opener

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #d6dde4; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: 3px 10px; text-align: left; }
tr:nth-child(even) { background: #f3f6f9; } .scroll { max-height: 420px; overflow: auto; } .quiet { color: #66727f; }
"""
FEW: Final = 24  # points of a line that are marked each
HOUR: Final = timedelta(hours=1)
PER_SECOND: Final = "messages per second, mean of each hour"
LAYOUT: dict[str, Any] = {
    "margin": {"l": 50, "r": 20, "t": 40, "b": 40},
    "height": 320,
    "template": "plotly_white",
}


def markdown(facts: Facts) -> str:
    """All sections as tables; a pipe in a name is escaped."""
    lines = [f"# {facts.lake}: what the pipeline found", "", f"Made {show(facts.made_at)} UTC.", ""]
    for section in sections(facts):
        lines += [f"## {section.title}", ""]
        if section.text:
            lines += [section.text, ""]
        if section.rows:
            lines.append(f"| {' | '.join(section.head)} |")
            lines.append("|" + "---|" * len(section.head))
            lines += [
                f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in section.rows
            ]
        else:
            lines.append(section.nothing)
        lines.append("")
    return "\n".join(lines)


def html(facts: Facts) -> str:
    from plotly.offline import get_plotlyjs

    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{escape(facts.lake)}: Tidegate pipeline</title><style>{STYLE}</style>",
        f"<script>{get_plotlyjs()}</script></head><body>",
        f"<h1>What the pipeline found</h1><p class='quiet'>{escape(facts.lake)}, made {show(facts.made_at)} UTC</p>",
    ]
    plots = dict(_figures(facts))
    for section in sections(facts):
        parts.append(_section(section))
        if section.title in plots:
            parts.append(plots[section.title].to_html(full_html=False, include_plotlyjs=False))
    parts.append("</body></html>")
    return "\n".join(parts)


def write(facts: Facts, folder: Path) -> list[Path]:
    """`report.html` and `report.md`, each replaced in one step."""
    make_folder(folder)
    written = []
    for name, text in (("report.html", html(facts)), ("report.md", markdown(facts))):
        draft = folder / f"_{name}"
        with open(draft, "w", encoding="utf-8", opener=opener) as out:
            out.write(text)
        written.append(draft.replace(folder / name))
    return written


def _section(section: Section) -> str:
    text = f"<h2>{escape(section.title)}</h2>" + (f"<p>{escape(section.text)}</p>" if section.text else "")
    if not section.rows:
        return f"{text}<p class='quiet'>{escape(section.nothing)}</p>"
    head = "".join(f"<th>{escape(cell)}</th>" for cell in section.head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in section.rows
    )
    return f"{text}<div class='scroll'><table><tr>{head}</tr>{body}</table></div>"


def _lines(rows: list[Row], by: str, x: str, y: str, scale: float, title: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for name in sorted({row[by] for row in rows}):
        mine = [row for row in rows if row[by] == name]
        figure.add_scatter(
            x=[row[x] for row in mine],
            y=[(row[y] or 0) * scale for row in mine],
            name=str(name),
            # A line through one point is nothing that can be seen.
            mode="lines+markers" if len(mine) <= FEW else "lines",
        )
    figure.update_layout(title=title, showlegend=True, **LAYOUT)
    hours = {row[x] for row in rows}
    if len(hours) == 1:  # or the axis is some milliseconds long
        (hour,) = hours
        figure.update_xaxes(range=[hour - HOUR, hour + HOUR])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _figures(facts: Facts) -> Iterator[tuple[str, Any]]:
    """Plots by the title of the section they stand below."""
    import plotly.graph_objects as go

    if facts.traffic:
        yield "Traffic", _lines(facts.traffic, "node", "at", "messages", 1 / 3600, PER_SECOND)
    if facts.topic_hours:
        yield (
            "Busiest topics",
            _lines(facts.topic_hours, "topic", "at", "messages", 1 / 3600, PER_SECOND),
        )
    if facts.changes:
        figure = go.Figure()
        for kind in sorted({row["kind"] for row in facts.changes}):
            mine = [row for row in facts.changes if row["kind"] == kind]
            figure.add_scatter(
                x=[row["changed_at"] for row in mine],
                y=[(row["after"] + 1e-6) / (row["before"] + 1e-6) for row in mine],
                text=[row["client_id"] for row in mine],
                name=kind,
                mode="markers",
            )
        figure.update_layout(title="times what it was before", yaxis_type="log", showlegend=True, **LAYOUT)
        yield "Clients whose behaviour changed", figure
    if facts.gate:
        shown = facts.gate[:30]
        figure = go.Figure(
            go.Bar(x=[row["client_id"] for row in shown], y=[row["held_seconds"] for row in shown])
        )
        figure.update_layout(title="seconds held", **LAYOUT)
        yield "Who was held, and why", figure
    if facts.members:
        shown = [row for row in facts.members if row["group"]]
        figure = go.Figure(
            go.Bar(
                x=[f"{row['group']} {row['client_id']}" for row in shown],
                y=[row["service"] * 1e3 for row in shown],
            )
        )
        figure.update_layout(title="milliseconds a message", **LAYOUT)
        yield "Members of shared groups", figure
    if facts.placement:
        figure = go.Figure()
        for name, words in (("util_up", "uplink"), ("util_match", "matching")):
            figure.add_bar(
                x=[row["edge"] for row in facts.placement],
                y=[row[name] for row in facts.placement],
                name=words,
            )
        figure.update_layout(title="expected utilisation", showlegend=True, **LAYOUT)
        yield "Placement of topics on edges", figure
    if facts.latency:
        hops = [row for row in facts.latency if row["hop"] != "total"]
        yield (
            "Calls, hop by hop, last hour",
            _lines(hops, "hop", "at", "p95_us", 1e-3, "P95 by hop, milliseconds"),
        )
    if facts.loads:
        for row in facts.loads:
            row["wait_mean"] = row["wait_sum_us"] / max(1, row["samples"])
        yield (
            "Queues of subscribers",
            _lines(facts.loads, "node", "at", "wait_mean", 1.0, "mean wait in the node, µs"),
        )
