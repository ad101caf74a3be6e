"""Measure Tidegate beside Mosquitto: both alive at once, measured in turns, medians of several repeats.

`python bench/run.py` takes about eight minutes, writes bench/results/latest.json and renders bench/README.md
from it. `--quick` takes about a minute, prints the table and writes nothing but what `--out` names. Data
goes to files and stdout, progress to stderr. Ctrl-C stops the brokers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

# Run as a script, this folder is on the path and the one above it is not.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import brokers, render
from bench.cases import CASES, Case, Kind
from tidegate import load

HERE = Path(__file__).resolve().parent
LATEST = HERE / "results" / "latest.json"
# A measurement that was disturbed more than this is done again, this often at most; what stays disturbed is
# shown, but not judged: a starved broker works in larger batches, which makes its messages look cheap.
DISTURBANCE_LIMIT = 0.10
RETRIES = 2
RECORD_SECONDS = 12.0  # so that the end of a window of ten seconds is part of it


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(case: Case, broker: brokers.Broker, timing: dict[str, Any]) -> dict[str, Any]:
    """Return one run as a dictionary; the calmest of several if the machine is busy."""
    best: load.Result | None = None
    for _ in range(1 + RETRIES):
        result = load.run(mode=case.mode, port=broker.port, pid=broker.pid, **timing)
        if best is None or result.disturbance < best.disturbance:
            best = result
        if best.disturbance <= DISTURBANCE_LIMIT or case.kind is not Kind.CPU:
            break
        say(f"  {case.name:10} {broker.name:10} others took {result.disturbance:.0%} of the time: once more")
    assert best is not None
    return best.as_dict() | {"disturbance": best.disturbance}


def summarise(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each measured figure and the sum of everything that went wrong."""
    wanted = (
        "broker_cpu_us_per_message",
        "broker_cpu_share",
        "tool_cpu_share",
        "disturbance",
        "messages_per_second",
        "latency_p50_ms",
        "latency_p99_ms",
        "rss_bytes_per_connection",
        "pss_bytes_per_connection",
        "connects_per_second",
    )
    out: dict[str, Any] = {
        key: statistics.median(run[key] for run in runs) for key in wanted if all(key in run for run in runs)
    }
    for key in ("sent", "expected", "received", "drops", "repeats", "refused", "disconnects"):
        out[key] = sum(run[key] for run in runs)
    for key in ("pings", "unanswered_pings"):
        if key in runs[0]:
            out[key] = sum(run[key] for run in runs)
    return out


def judge(case: Case, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the ratio to Mosquitto and whether Tidegate keeps its limit; None where it cannot be said."""
    verdict: dict[str, Any] = {"ratio": None, "passed": None}
    ours, theirs = found.get("tidegate"), found.get("mosquitto")
    figure = {Kind.CPU: "broker_cpu_us_per_message", Kind.MEMORY: "pss_bytes_per_connection"}.get(case.kind)
    if figure and ours and theirs and theirs.get(figure) and ours.get(figure):
        verdict["ratio"] = ours[figure] / theirs[figure]
    if ours is None:
        return verdict
    faults = ("drops", "repeats", "refused", "disconnects", "unanswered_pings")
    is_exact = not any(ours.get(key) for key in faults)
    if case.kind is Kind.CPU:
        is_disturbed = any(each.get("disturbance", 0) > DISTURBANCE_LIMIT for each in found.values())
        if not is_exact:
            verdict["passed"] = False
        elif verdict["ratio"] is not None and not is_disturbed:
            verdict["passed"] = verdict["ratio"] <= case.limit
    elif case.kind is Kind.RATE:
        enough = min(case.limit, theirs["messages_per_second"]) if theirs else case.limit
        verdict["passed"] = is_exact and ours["messages_per_second"] >= enough
    elif case.kind is Kind.MEMORY:
        verdict["passed"] = is_exact and ours["pss_bytes_per_connection"] <= case.limit
    else:
        verdict["passed"] = is_exact
    return verdict


def run_case(
    case: Case, names: Sequence[str], running: dict[str, brokers.Broker], *, quick: bool, repeats: int
) -> dict[str, Any]:
    """Measure the brokers in turns and return the row."""
    timing: dict[str, Any] = {"seconds": 1.0, "warmup": 0.3} if quick else {"seconds": 4.0, "warmup": 1.0}
    if case.kind not in (Kind.CPU, Kind.RATE, Kind.RECORD):
        timing = {}
    timing |= case.options | (case.quick if quick else {})
    if case.kind is Kind.RECORD:
        return run_record(case, running, timing, repeats)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(1 if case.kind is Kind.EXACT else repeats):
        for name in names:
            if case.kind in (Kind.MEMORY, Kind.RATE):
                # What an earlier run left behind would hide what a connection takes; and only this case is durable.
                durable = case.kind is Kind.RATE
                with brokers.Broker(name=name, cpu=running[name].cpu, durable=durable) as fresh:
                    runs[name].append(measure(case, fresh, timing))
            else:
                runs[name].append(measure(case, running[name], timing))
            say(f"  {case.name:10} {name:10} {describe(case, runs[name][-1])}")
    found = {name: summarise(each) for name, each in runs.items()}
    return {
        "name": case.name,
        "title": case.title,
        "mode": case.mode,
        "kind": case.kind,
        "limit": case.limit,
        "load": runs[names[0]][0]["settings"],
        "brokers": {name: {"median": found[name], "runs": runs[name]} for name in names},
        **judge(case, found),
    }


def run_record(
    case: Case, running: dict[str, brokers.Broker], timing: dict[str, Any], repeats: int
) -> dict[str, Any]:
    """Measure Tidegate with and without its recorder, in turns; a window of the recorder is in every measurement."""
    cpu = next(iter(running.values())).cpu
    timing = timing | {"seconds": max(timing["seconds"], RECORD_SECONDS)}
    with (
        brokers.Broker(name="tidegate", cpu=cpu) as plain,
        brokers.Broker(name="tidegate", cpu=cpu, record=case.record) as recording,
    ):
        both = {"tidegate": plain, "recording": recording}
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in both}
        for number in range(repeats):
            # In the other order every second time, so that a machine that becomes slower is nobody's fault.
            for name, broker in list(both.items())[:: -1 if number % 2 else 1]:
                runs[name].append(measure(case, broker, timing))
                say(f"  {case.name:14} {name:10} {describe(case, runs[name][-1])}")
    found = {name: summarise(each) for name, each in runs.items()}
    costs = [[each["broker_cpu_us_per_message"] for each in runs[name]] for name in both]
    # Of neighbours: what disturbs one measurement mostly disturbs the one beside it as well.
    pairs = [with_it / without for without, with_it in zip(*costs, strict=True) if without and with_it]
    ratio = statistics.median(pairs) if pairs else None
    # The recorder's thread and the loop share a core, and wait for each other: only the plain broker can tell.
    is_disturbed = found["tidegate"]["disturbance"] > DISTURBANCE_LIMIT
    is_exact = not any(found["recording"].get(key) for key in ("drops", "repeats", "disconnects"))
    return {
        "name": case.name,
        "title": case.title,
        "mode": case.mode,
        "kind": case.kind,
        "limit": case.limit,
        "load": runs["tidegate"][0]["settings"],
        "brokers": {name: {"median": found[name], "runs": runs[name]} for name in both},
        "ratio": ratio,
        "passed": False if not is_exact else None if is_disturbed or not ratio else ratio <= case.limit,
    }


def describe(case: Case, run: dict[str, Any]) -> str:
    """Return one line about one run."""
    if case.kind is Kind.MEMORY:
        return f"{run['pss_bytes_per_connection']:,.0f} bytes a connection"
    if case.kind is Kind.EXACT:
        return f"{run['received']:,} of {run['expected']:,} received, {run['disconnects']} disconnected"
    return (
        f"{run['broker_cpu_us_per_message']:8.3f} µs a message, {run['messages_per_second']:>11,.0f} msg/s, "
        f"p99 {run['latency_p99_ms']:.2f} ms, {run['drops']} lost"
    )


def machine() -> dict[str, Any]:
    """Return what the numbers depend on besides the code."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else "unknown", "cores": os.cpu_count(), "kernel": platform.release()}


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def header(names: Sequence[str], arguments: argparse.Namespace, cpus: list[int] | None) -> dict[str, Any]:
    """Return everything a reader needs to judge or repeat the run."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "is_modified": bool(git("status", "--porcelain", "--", "../src")),
        "command": "python bench/run.py " + " ".join(sys.argv[1:]),
        "is_quick": arguments.quick,
        "repeats": arguments.repeats,
        "machine": machine(),
        "pinned": cpus is not None,
        "versions": {
            "python": platform.python_version(),
            "uvloop": package_version("uvloop"),
            **{name: brokers.version(name) for name in names},
        },
        "broker_settings": {
            "tidegate": "tidegate serve --host 127.0.0.1 --port N --log-level warning (defaults)",
            "mosquitto": "; ".join(brokers.MOSQUITTO_SETTINGS),
        },
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    cases = [case.name for case in CASES]
    names = ["tidegate", "mosquitto"]
    parser = argparse.ArgumentParser(description="Measure Tidegate beside Mosquitto.")
    parser.add_argument("--quick", action="store_true", help="a minute instead of eight; rough numbers")
    parser.add_argument("--repeats", type=int, help="measurements of each case and broker (3; quick: 1)")
    parser.add_argument("--case", action="append", choices=cases, help="only this case; may be repeated")
    parser.add_argument("--broker", action="append", choices=names, help="only this broker")
    parser.add_argument("--out", type=Path, help="JSON file to write (a full run: bench/results/latest.json)")
    parser.add_argument("--no-pin", action="store_true", help="do not give broker and load a core each")
    parsed = parser.parse_args(arguments)
    parsed.repeats = parsed.repeats or (1 if parsed.quick else 3)
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 0 if every limit was kept, 1 if not."""
    parsed = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the brokers are stopped
    names = parsed.broker or ["tidegate", "mosquitto"]
    chosen = [case for case in CASES if not parsed.case or case.name in parsed.case]
    available = sorted(os.sched_getaffinity(0))
    cpus = available[:2] if len(available) >= 2 and not parsed.no_pin else None
    report = header(names, parsed, cpus)
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(brokers.Broker(name=name, cpu=cpus[0] if cpus else None))
            for name in names
        }
        if cpus:
            os.sched_setaffinity(0, {cpus[1]})
            stack.callback(os.sched_setaffinity, 0, set(available))
        report["cases"] = [
            run_case(case, names, running, quick=parsed.quick, repeats=parsed.repeats) for case in chosen
        ]
    is_whole = not (parsed.quick or parsed.case or parsed.broker)
    out = parsed.out or (LATEST if is_whole else None)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        say(f"wrote {out}")
    if out == LATEST:
        render.write(LATEST, HERE / "README.md")
    print(render.table(report))
    unjudged = [row["name"] for row in report["cases"] if row["passed"] is None]
    if unjudged and len(names) == 2:
        say(f"not judged, because the machine was too busy: {', '.join(unjudged)}")
    return 1 if any(row["passed"] is False for row in report["cases"]) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except load.LoadError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"hint: {error.hint}")
        sys.exit(1)
