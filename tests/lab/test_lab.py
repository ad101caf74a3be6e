"""The lab itself: names, statistics, records, pages, and the command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tidegate.flow.backoff import Event
from tidegate.lab import render
from tidegate.lab.backoff import PAPER
from tidegate.lab.errors import UnknownExperiment
from tidegate.lab.events import EventFile
from tidegate.lab.experiment import Claim, Context, Part, Presentation, Verdict
from tidegate.lab.registry import find
from tidegate.lab.run import dumps, run, write_pages
from tidegate.lab.statistics import percentile, show, student_quantile, summarise

LAB = [sys.executable, "-m", "tidegate", "lab"]


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAB, *arguments], capture_output=True, text=True, timeout=100, check=False, cwd=cwd
    )


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (39, 2.023), (199, 1.972)],
)
def test_student_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_a_summary_has_mean_and_interval_and_one_value_has_none() -> None:
    found = summarise([1.0, 2.0, 3.0])
    assert (found["mean"], found["min"], found["max"], found["n"]) == (2.0, 1.0, 3.0, 3)
    assert found["half_width"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert show(summarise([0.5]), "{:.1f}", 100.0) == "50.0"
    assert show(summarise([])) == "–"
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_names_are_found_by_number_paper_and_experiment() -> None:
    everything = [experiment.name for _, experiment in find("1")]
    assert everything == [experiment.name for _, experiment in find("backoff")]
    assert {"e1.1-traffic", "e1.2-cost", "e1.3-latency", "e1.4-detection", "flood"} <= set(everything)
    assert [experiment.name for _, experiment in find("E1.1")] == ["e1.1-traffic"]
    with pytest.raises(UnknownExperiment) as caught:
        find("latncy")
    assert caught.value.nearest[0] == "e1.3-latency"


def test_the_same_seeds_give_the_same_numbers(tmp_path: Path) -> None:
    [(paper, experiment)] = find("e1.1")
    texts = []
    for name in ("a", "b"):
        path = run(paper, experiment, Context(is_quick=True, seeds=1, only=Part.SIM), tmp_path / name)
        report = json.loads(path.read_text())
        texts.append(json.dumps([report["summary"], report["seeds"], report["sweep"]]))
    assert texts[0] == texts[1]


def test_pages_are_rendered_again_from_json_alone(tmp_path: Path) -> None:
    [(paper, experiment)] = find("e1.3")
    run(paper, experiment, Context(is_quick=True, seeds=1, only=Part.SIM), tmp_path)
    first = {path: path.read_bytes() for path in write_pages(paper, tmp_path)}
    for path in first:
        path.unlink()
    assert {path: path.read_bytes() for path in write_pages(paper, tmp_path)} == first
    html = (tmp_path / "backoff" / "index.html").read_text()
    assert "<svg" in html
    assert "<img" not in html
    assert "http://" not in html.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_json_is_strict_and_one_line_a_record() -> None:
    text = dumps({"seeds": [{"a": float("inf")}, {"a": 1 / 3}], "summary": {}, "n": None})
    assert json.loads(text) == {"seeds": [{"a": None}, {"a": 0.3333333}], "summary": {}, "n": None}
    assert text.count("\n") == 8


def test_the_readme_gets_the_headline_between_its_marks(tmp_path: Path) -> None:
    claim = Claim(
        text="long", paper="16 %", ours="15 %", verdict=Verdict.HOLDS, short="Bytes | saved", is_headline=True
    )
    other = Claim(text="long", paper="16 %", ours="15 %", verdict=Verdict.HOLDS, short="Only in results/")
    report = {"date": "2026-01-02T03:04", "machine": {"cores": 2, "cpu": "a processor"}}
    shown: render.Shown = [(PAPER.experiments[0], report, Presentation(claims=[claim, other]))]
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{render.BEGIN}\nstale\n{render.END}\nafter\n")
    assert render.write_readme(readme, shown)
    text = readme.read_text()
    assert text.startswith("before\n<!-- lab -->\n| experiment |")
    assert text.endswith("<!-- /lab -->\nafter\n")
    assert "| Bytes \\| saved | 16 % | 15 % | ✅ holds |" in text
    assert "Measured 2026-01-02 on 2 cores of a processor;" in text
    assert "stale" not in text and "Only in results/" not in text
    (tmp_path / "results").mkdir()
    page = render.write_summary([(PAPER, shown)], tmp_path / "results").read_text()
    assert "Only in results/" in page and "Bytes \\| saved" in page
    readme.write_text("nothing\n")
    assert not render.write_readme(readme, shown)
    assert readme.read_text() == "nothing\n"


def test_events_are_one_json_object_a_line_and_appear_whole(tmp_path: Path) -> None:
    [(paper, experiment)] = find("e1.1")
    target = tmp_path / "events.jsonl"
    with EventFile(target) as events:
        context = Context(is_quick=True, seeds=1, only=Part.SIM, record=events.write)
        run(paper, experiment, context, tmp_path)
        assert not target.exists()
    lines = target.read_text().splitlines()
    assert len(lines) == events.count > 1000
    fields = list(Event.__dataclass_fields__)
    assert all(list(json.loads(line)) == fields for line in lines[:1000])
    held = [json.loads(line) for line in lines if '"broker_mode":"paper, backpressure"' in line]
    assert any(event["d_f"] > 1.0 and event["t_forwarded"] > event["t_read"] for event in held)


def test_an_unknown_name_is_one_line_and_a_hint(tmp_path: Path) -> None:
    done = command("run", "trafic", cwd=tmp_path)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error == "error: there is no experiment 'trafic'"
    assert hint.startswith("hint: did you mean e1.1-traffic")
    assert done.stdout == ""


def test_the_command_lists_runs_and_reports(tmp_path: Path) -> None:
    assert "e1.4-detection" in command("list", cwd=tmp_path).stdout
    empty = command("report", cwd=tmp_path)
    assert empty.returncode == 1
    assert "hint:" in empty.stderr
    done = command("run", "e1.3", "--quick", "--seeds", "1", "--only", "sim", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / line).exists() for line in done.stdout.splitlines())
    last = done.stderr.splitlines()[-1]
    assert "(paper: " in last and any(mark in last for mark in render.MARKS.values())
    again = command("report", "--out", "build/lab", cwd=tmp_path)
    assert again.stdout.splitlines() == [*done.stdout.splitlines()[1:], "build/lab/README.md"]  # rows of all papers


def test_ctrl_c_stops_every_broker(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*LAB, "run", "e1.1", "--quick", "--only", "real"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        children: list[psutil.Process] = []
        deadline = time.monotonic() + 60.0
        while len(children) < 4:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
            children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert (len(gone) >= 4, alive) == (True, [])
    assert list(tmp_path.rglob("*.json")) == []
