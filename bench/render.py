"""Turn bench/results/latest.json into bench/README.md, so that no number is typed by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = """\
# Benchmarks

Rendered by `bench/render.py` from `bench/results/latest.json`; do not edit. `make bench` measures again
(about eight minutes, on an otherwise idle machine); `python bench/run.py --quick` gives rough numbers in
one minute.

{table}

Measured {date} at commit {commit} on {cores} cores of {cpu}, Linux {kernel}; {versions}. Command:
`{command}`.

## How

- Both brokers run at once on free ports of the loopback address and are measured in turns (A B A B …);
  the table shows medians of {repeats}. {pinned}
- The figure is the CPU time of the broker's process (user and system, all threads, from the scheduler's
  counters) divided by the messages that subscribers received, after a warm-up. It is what a message
  costs; messages a second is what came out of it on this machine, load tool included.
- The load is a closed loop: a publisher has at most {window} messages on their way ({fanin_window} each
  at fan-in), so that no broker has to drop because the tool reads too slowly; latency in these rows is
  mostly the time spent in that window. At QoS 1 and 2 at most {inflight} messages of a publisher are
  unacknowledged. The trickle is an open loop: every message leaves at its time, and its latency is the
  broker's.
- Payloads are {payload_bytes} bytes, the protocol is MQTT 3.1.1 unless the row says otherwise. Every
  message is counted; where a subscriber has one publisher, every sequence number is checked.
- Recording is measured against the same broker without it, in turns, each time long enough to hold the end of a
  window; the CPU time is that of the whole process, the recorder's thread included.
- In the durable row Tidegate acknowledges a message after it is committed and synced to disk. Mosquitto
  acknowledges at once and writes a snapshot of its memory every 30 minutes (its default): a crash loses
  what came since. That is a weaker promise; its rate is shown all the same.
- Memory is the proportional set size after all connections are open, less that before, of a fresh
  process.
- A measurement in which others took more than 10 % of the time (the host, or processes that kept broker or
  load tool from running) was repeated. What stayed disturbed is shown, but not judged.
- The load tool itself reaches several million messages a second (`python bench/ceiling.py`).

Settings of Tidegate: `{tidegate}`. Settings of Mosquitto: `{mosquitto}`, else its defaults. Its two limits are
lifted in its favour: so it never has to drop, keeps its connections at QoS 2 (with its default it closes those
with more than 20 unfinished messages), and does QoS 1 at less cost. `set_tcp_nodelay` stays off, its default,
because with it the saturating rows were dearer.
"""
BEGIN = "<!-- bench: rendered, do not edit -->"
END = "<!-- /bench -->"
MARKS = {True: "✅", False: "❌", None: "not judged"}


def table(report: dict[str, Any]) -> str:
    """Return the rows of a report as Markdown tables, one for each kind of case."""
    parts = [
        _cpu_table(report),
        _record_table(report),
        _rate_table(report),
        _memory_table(report),
        _hold_table(report),
    ]
    return "\n\n".join(part for part in parts if part)


def _rows(report: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in report["cases"] if row["kind"] == kind]


def _figure(row: dict[str, Any], broker: str, key: str, form: str) -> str:
    value = row["brokers"].get(broker, {}).get("median", {}).get(key)
    return "–" if value is None else form.format(value)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cpu_table(report: dict[str, Any]) -> str:
    head = ["µs of broker CPU a message", "Tidegate", "Mosquitto", "ratio", "limit", ""]
    head += [
        "Tidegate msg/s",
        "Mosquitto msg/s",
        "Tidegate p50 / p99 ms",
        "Mosquitto p50 / p99 ms",
        "lost (T / M)",
    ]
    rows = []
    for row in _rows(report, "cpu"):
        line = [row["title"]]
        for broker in ("tidegate", "mosquitto"):
            line.append(_figure(row, broker, "broker_cpu_us_per_message", "{:.2f}"))
        line.append("–" if row["ratio"] is None else f"{row['ratio']:.2f}")
        line += [f"{row['limit']:.2f}", MARKS[row["passed"]]]
        for broker in ("tidegate", "mosquitto"):
            line.append(_figure(row, broker, "messages_per_second", "{:,.0f}"))
        for broker in ("tidegate", "mosquitto"):
            median = _figure(row, broker, "latency_p50_ms", "{:.2f}")
            line.append(f"{median} / {_figure(row, broker, 'latency_p99_ms', '{:.2f}')}")
        line.append(f"{_figure(row, 'tidegate', 'drops', '{}')} / {_figure(row, 'mosquitto', 'drops', '{}')}")
        rows.append(line)
    return _markdown(head, rows) if rows else ""


def _record_table(report: dict[str, Any]) -> str:
    head = ["µs of broker CPU a message", "not recording", "recording", "ratio", "limit", ""]
    head += ["msg/s not recording", "msg/s recording", "p50 / p99 ms", "p50 / p99 ms, recording"]
    rows = []
    for row in _rows(report, "record"):
        line = [row["title"]]
        for broker in ("tidegate", "recording"):
            line.append(_figure(row, broker, "broker_cpu_us_per_message", "{:.3f}"))
        line.append("–" if row["ratio"] is None else f"{row['ratio']:.2f}")
        line += [f"{row['limit']:.2f}", MARKS[row["passed"]]]
        for broker in ("tidegate", "recording"):
            line.append(_figure(row, broker, "messages_per_second", "{:,.0f}"))
        for broker in ("tidegate", "recording"):
            median = _figure(row, broker, "latency_p50_ms", "{:.2f}")
            line.append(f"{median} / {_figure(row, broker, 'latency_p99_ms', '{:.2f}')}")
        rows.append(line)
    return _markdown(head, rows) if rows else ""


def _rate_table(report: dict[str, Any]) -> str:
    head = ["messages a second, durable", "Tidegate", "Mosquitto", "limit", ""]
    head += ["Tidegate µs", "Mosquitto µs", "Tidegate p50 / p99 ms", "Mosquitto p50 / p99 ms"]
    rows = []
    for row in _rows(report, "rate"):
        line = [row["title"]]
        for broker in ("tidegate", "mosquitto"):
            line.append(_figure(row, broker, "messages_per_second", "{:,.0f}"))
        line += [f"{row['limit']:,.0f} or Mosquitto's", MARKS[row["passed"]]]
        for broker in ("tidegate", "mosquitto"):
            line.append(_figure(row, broker, "broker_cpu_us_per_message", "{:.2f}"))
        for broker in ("tidegate", "mosquitto"):
            median = _figure(row, broker, "latency_p50_ms", "{:.2f}")
            line.append(f"{median} / {_figure(row, broker, 'latency_p99_ms', '{:.2f}')}")
        rows.append(line)
    return _markdown(head, rows) if rows else ""


def _memory_table(report: dict[str, Any]) -> str:
    head = ["bytes of broker memory a connection", "Tidegate", "Mosquitto", "limit", ""]
    rows = []
    for row in _rows(report, "memory"):
        line = [f"{row['load']['subscribers']:,} idle, one subscription each"]
        for broker in ("tidegate", "mosquitto"):
            line.append(_figure(row, broker, "pss_bytes_per_connection", "{:,.0f}"))
        line += [f"{row['limit']:,.0f}", MARKS[row["passed"]]]
        rows.append(line)
    return _markdown(head, rows) if rows else ""


def _hold_table(report: dict[str, Any]) -> str:
    head = ["held connections", "broker", "received of expected", "doubled", "disconnected"]
    head += ["pings answered", "p99 ms", ""]
    rows = []
    for row in _rows(report, "exact"):
        load = row["load"]
        title = f"{load['subscribers']:,} for {load['seconds']:g} s, one QoS {load['qos']} message each"
        for broker in row["brokers"]:
            counts = (
                _figure(row, broker, "received", "{:,}") + " of " + _figure(row, broker, "expected", "{:,}")
            )
            line = [title, broker.capitalize(), counts]
            for key in ("repeats", "disconnects", "pings"):
                line.append(_figure(row, broker, key, "{:,}"))
            line.append(_figure(row, broker, "latency_p99_ms", "{:.2f}"))
            line.append(MARKS[row["passed"]] if broker == "tidegate" else "")
            rows.append(line)
    return _markdown(head, rows) if rows else ""


def page(report: dict[str, Any]) -> str:
    """Return the whole page."""
    machine, versions = report["machine"], report["versions"]
    loads = {row["mode"]: row["load"] for row in report["cases"]}
    pairs, fanin = loads.get("pairs", {}), loads.get("fanin", {})
    facts = {
        "table": table(report),
        "date": report["date"],
        "commit": report["commit"][:12] + (" with local changes" if report["is_modified"] else ""),
        "cores": machine["cores"],
        "cpu": machine["cpu"],
        "kernel": machine["kernel"],
        "versions": ", ".join(f"{name} {text}" for name, text in versions.items()),
        "command": report["command"].strip(),
        "repeats": report["repeats"],
        "pinned": "The broker has one core, the load tool another."
        if report["pinned"]
        else "Nothing is pinned.",
        "window": pairs.get("window", "–"),
        "fanin_window": fanin.get("window", "–"),
        "inflight": pairs.get("inflight", "–"),
        "payload_bytes": pairs.get("payload_bytes", "–"),
        "tidegate": report["broker_settings"]["tidegate"],
        "mosquitto": report["broker_settings"]["mosquitto"],
    }
    return PAGE.format(**facts)


def write(source: Path, target: Path) -> None:
    """Render `source` (JSON) to `target` (Markdown)."""
    report = json.loads(source.read_text(encoding="utf-8"))
    target.write_text(page(report), encoding="utf-8")
    put_between_marks(short_table(report), HERE.parent / "README.md")
    put_between_marks(sizing_table(report), HERE.parent / "docs" / "operating.md")


def short_table(report: dict[str, Any]) -> str:
    """The rows that the project's README shows."""
    head = ["", "Tidegate", "Mosquitto", "ratio"]
    rows = []
    for row in _rows(report, "cpu"):
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        costs = [_figure(row, name, "broker_cpu_us_per_message", "{:.2f} µs") for name in ("tidegate", "mosquitto")]
        rows.append([f"CPU a message, {row['title']}", *costs, ratio])
    for row in _rows(report, "rate"):
        rates = [_figure(row, name, "messages_per_second", "{:,.0f}/s") for name in ("tidegate", "mosquitto")]
        rows.append([f"{row['title']}", *rates, "–"])
    for row in _rows(report, "memory"):
        sizes = [_figure(row, name, "pss_bytes_per_connection", "{:,.0f} B") for name in ("tidegate", "mosquitto")]
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        rows.append(["memory of an idle connection", *sizes, ratio])
    machine, versions = report["machine"], report["versions"]
    source = (
        f"Measured {report['date'][:10]} on {machine['cores']} cores of {machine['cpu']}, Python "
        f"{versions['python']}, Mosquitto {versions.get('mosquitto', '–')}; rendered from bench/results/latest.json."
    )
    return _markdown(head, rows) + "\n\n" + source


def sizing_table(report: dict[str, Any]) -> str:
    """What a node needs, for the page on operating."""
    rows = [
        [
            row["title"],
            _figure(row, "tidegate", "broker_cpu_us_per_message", "{:.2f} µs"),
            _figure(row, "tidegate", "messages_per_second", "{:,.0f}"),
            "–",
        ]
        for kind in ("cpu", "rate")
        for row in _rows(report, kind)
    ]
    for row in _rows(report, "memory"):
        size = _figure(row, "tidegate", "pss_bytes_per_connection", "{:,.0f} bytes")
        rows.append(["an idle connection with one subscription", "–", "–", size])
    machine = report["machine"]
    source = f"Measured {report['date'][:10]} on {machine['cores']} cores of {machine['cpu']}."
    return _markdown(["", "CPU a message", "messages a second", "memory"], rows) + "\n\n" + source


def put_between_marks(content: str, path: Path) -> None:
    """Replace what a page has between the two marks."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "latest.json", HERE / "README.md")
