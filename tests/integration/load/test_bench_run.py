"""bench/run.py as a process of its own: it measures, writes what it found, and leaves no broker behind."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = str(ROOT / "bench" / "run.py")


def test_a_quick_run_writes_the_report_it_prints(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    options = ["--quick", "--broker", "mosquitto", "--case", "pairs-0", "--case", "idle", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert [row["name"] for row in report["cases"]] == ["pairs-0", "idle"]
    pairs = report["cases"][0]["brokers"]["mosquitto"]
    assert pairs["median"]["drops"] == 0
    assert pairs["median"]["broker_cpu_us_per_message"] > 0
    assert len(pairs["runs"]) == 1
    assert report["versions"]["mosquitto"][0].isdigit()
    assert "QoS 0, 10→10" in done.stdout
    assert str(ROOT) not in out.read_text()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_stops_its_brokers(sent: signal.Signals) -> None:
    options = ["--quick", "--broker", "mosquitto", "--case", "pairs-0", "--repeats", "100"]
    with subprocess.Popen(
        [sys.executable, SCRIPT, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the first measurement is done
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        process.wait(30)
    assert children
    deadline = time.monotonic() + 10
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.02)
    assert process.returncode == 128 + sent
