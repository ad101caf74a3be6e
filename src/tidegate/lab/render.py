"""Pages of a paper, from JSON alone: Markdown, one HTML file that needs nothing else, and the README's table."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from tidegate.lab.experiment import Claim, Experiment, Paper, Presentation, Table, Verdict

BEGIN = "<!-- lab -->"
END = "<!-- /lab -->"
MARKS = {
    Verdict.HOLDS: "✅ holds",
    Verdict.FAILS: "❌ fails",
    Verdict.DIFFERS: "≠ differs",
    Verdict.NOT_JUDGED: "– not judged",
}
CLAIM_HEAD = ["claim", "paper", "ours", "verdict"]
CSS = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{border:1px solid #ccc;padding:.3rem .6rem;text-align:right;vertical-align:top}
th:first-child,td:first-child{text-align:left}
.claims td,.claims th{text-align:left}
th{background:#f3f3f3}svg{max-width:100%;height:auto}.note{color:#555}code{background:#f3f3f3}
@media(prefers-color-scheme:dark){body{background:#161616;color:#e8e8e8}th,code{background:#2a2a2a}
td,th{border-color:#444}.note{color:#aaa}svg{background:#fff}}
"""

Shown = list[tuple[Experiment, dict[str, Any], Presentation]]


def markdown_table(head: list[str], rows: list[list[str]], *, is_text: bool = False) -> str:
    rule = ["---"] * len(head) if is_text else ["---"] + ["---:"] * (len(head) - 1)
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in [head, rule, *rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def claim_rows(claims: list[Claim]) -> list[list[str]]:
    return [[claim.text, claim.paper, claim.ours, MARKS[claim.verdict]] for claim in claims]


def facts(report: dict[str, Any]) -> str:
    """One sentence on where the numbers of an experiment come from."""
    machine, versions = report["machine"], report["versions"]
    modified = " with local changes" if report["is_modified"] else ""
    quick = " This was a quick run: its numbers are rough." if report["is_quick"] else ""
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"Measured {report['date']} in {report['seconds']:.0f} s at commit {report['commit'][:12]}{modified} on "
        f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}; {listed}. "
        f"Command: `{report['command'] or report['experiment']}`.{quick}"
    )


def parameters(report: dict[str, Any]) -> list[list[str]]:
    return [[name, _text(value)] for name, value in report["parameters"].items()]


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_text(each)}" for name, each in value.items())
    return str(value)


def markdown(paper: Paper, shown: Shown) -> str:
    """The whole page; claims of all experiments come first."""
    lines = [f"# {paper.number}. {paper.title}", "", f"Source: {paper.source}.", ""]
    lines += [
        "Rendered by `tidegate lab report` from the JSON files beside it; do not edit.",
        "",
        "## Claims",
        "",
    ]
    for experiment, _, presentation in shown:
        if presentation.claims:
            lines += [f"**{experiment.name}: {experiment.title}**", ""]
            lines += [markdown_table(CLAIM_HEAD, claim_rows(presentation.claims), is_text=True), ""]
            lines += [f"- {claim.note}" for claim in presentation.claims if claim.note] + [""]
    for experiment, report, presentation in shown:
        lines += [f"## {experiment.name}: {experiment.title}", "", experiment.question, ""]
        for figure in presentation.figures:
            lines += [f"![{figure.text}]({experiment.name}-{figure.name}.png)", ""]
        for table in presentation.tables:
            lines += [f"**{table.title}**", "", markdown_table(table.head, table.rows), ""]
            lines += [table.note, ""] if table.note else []
        lines += [f"- {note}" for note in presentation.notes] + [""]
        lines += ["Parameters:", "", markdown_table(["name", "value"], parameters(report), is_text=True), ""]
        lines += [facts(report), ""]
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"


def html(paper: Paper, shown: Shown, drawings: dict[str, str]) -> str:
    """The same as one file; `drawings` are SVG texts by `experiment-figure`."""
    title = escape(f"{paper.number}. {paper.title}")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{CSS}</style></head><body>',
        f"<h1>{title}</h1><p>{escape(paper.source)}.</p><h2>Claims</h2>",
    ]
    for experiment, _, presentation in shown:
        if presentation.claims:
            parts.append(f"<h3>{escape(experiment.name)}: {escape(experiment.title)}</h3>")
            parts.append(_html_table(CLAIM_HEAD, claim_rows(presentation.claims), "claims"))
            parts += [
                f'<p class="note">{escape(claim.note)}</p>' for claim in presentation.claims if claim.note
            ]
    for experiment, report, presentation in shown:
        parts.append(f"<h2>{escape(experiment.name)}: {escape(experiment.title)}</h2>")
        parts.append(f"<p>{escape(experiment.question)}</p>")
        for figure in presentation.figures:
            drawing = drawings.get(f"{experiment.name}-{figure.name}", "")
            parts.append(f'<figure role="img" aria-label="{escape(figure.text)}">{drawing}</figure>')
        parts += [_html_block(table) for table in presentation.tables]
        parts += [f"<p>{escape(note)}</p>" for note in presentation.notes]
        parts.append("<details><summary>Parameters</summary>")
        parts.append(_html_table(["name", "value"], parameters(report), "claims") + "</details>")
        parts.append(f'<p class="note">{escape(facts(report))}</p>')
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _html_block(table: Table) -> str:
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"<h3>{escape(table.title)}</h3>{_html_table(table.head, table.rows)}{note}"


def _html_table(head: list[str], rows: list[list[str]], kind: str = "") -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def short_table(claims: list[Claim]) -> str:
    rows = [[claim.short, claim.paper, claim.ours, MARKS[claim.verdict]] for claim in claims if claim.short]
    return markdown_table(["experiment", "paper", "Tidegate", ""], rows, is_text=True)


def measured(shown: Shown) -> str:
    """One sentence: when and where."""
    dates = sorted({report["date"][:10] for _, report, _ in shown})
    period = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machines = sorted({f"{report['machine']['cores']} cores of {report['machine']['cpu']}" for _, report, _ in shown})
    place = " and ".join(machines)
    return f"Measured {period} on {place}; rendered by `tidegate lab report` from the JSON in results/."


def readme_table(shown: Shown) -> str:
    """The headline claims of all papers, for the project's README."""
    claims = [claim for _, _, page in shown for claim in page.claims if claim.is_headline]
    return f"{short_table(claims)}\n\n{measured(shown)}"


def summary(papers: list[tuple[Paper, Shown]]) -> str:
    """The page beside the papers' folders: every claim that has a short form."""
    lines = ["# The papers' experiments, run again", ""]
    lines += [
        "Rendered by `tidegate lab report` from the JSON files below; do not edit. Each title leads to the page with",
        "all claims, figures, parameters and machines; [docs/lab.md](../docs/lab.md) says how they are run.",
        "",
    ]
    for paper, shown in papers:
        lines += [f"## [{paper.number}. {paper.title}]({paper.name}/README.md)", ""]
        lines += [short_table([claim for _, _, page in shown for claim in page.claims]), "", measured(shown), ""]
    return "\n".join(lines)


def write_summary(papers: list[tuple[Paper, Shown]], out: Path) -> Path:
    path = out / "README.md"
    path.write_text(summary([(paper, shown) for paper, shown in papers if shown]), encoding="utf-8")
    return path


def put_between_marks(text: str, content: str, begin: str = BEGIN, end: str = END) -> str:
    """`text` with what is between the two marks replaced; unchanged if they are not there."""
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n{end}{after}" if found and closed else text


def write_readme(readme: Path, shown: Shown) -> bool:
    """Put the table into a README that has the marks; whether it had them."""
    text = readme.read_text(encoding="utf-8")
    updated = put_between_marks(text, readme_table(shown))
    if BEGIN not in text:
        return False
    if updated != text:
        readme.write_text(updated, encoding="utf-8")
    return True
