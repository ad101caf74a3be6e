"""`tidegate space` at a terminal: Ctrl-C while it reads, masks, and an MQTT broker that goes and comes back."""

import fcntl
import json
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tidegate.testing import BrokerThread

SPACE = [sys.executable, "-m", "tidegate", "space"]


def wait_for_line(path: Path, words: str, process: subprocess.Popen[str]) -> None:
    """Until the file that a process writes has these words."""
    deadline = time.monotonic() + 30.0
    while words not in path.read_text():
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["query", "update", "watch"])
def test_ctrl_c_ends_a_command_that_reads(name: str) -> None:
    with (
        BrokerThread() as broker,
        subprocess.Popen(
            [*SPACE, name, "--url", f"mqtt://127.0.0.1:{broker.port}", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"ASK")
        process.stdin.flush()
        deadline = time.monotonic() + 30.0
        while struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, b"\0" * 4)) != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(10) == 130
        finally:
            process.kill()


def test_a_watch_and_its_broker_outlive_the_mqtt_broker(tmp_path: Path) -> None:
    said, served = tmp_path / "watch", tmp_path / "serve"
    with BrokerThread() as broker:
        port = broker.port
        at = ("--url", f"mqtt://127.0.0.1:{port}", "-s", "home")
        with served.open("w") as log:
            serve = subprocess.Popen([*SPACE, "serve", *at], stdout=subprocess.PIPE, stderr=log, text=True)
        assert serve.stdout is not None
        assert "ready" in serve.stdout.readline()
        with said.open("w") as errors:
            watch = subprocess.Popen(
                [*SPACE, "watch", "--predicate", "<urn:p>", "--object", "1", "--count", "1", *at],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["rows"] == []
    try:
        for path, process in ((said, watch), (served, serve)):
            wait_for_line(path, "lost", process)
        with BrokerThread(port=port):
            for path, process in ((said, watch), (served, serve)):
                wait_for_line(path, "is back", process)
            text = "INSERT DATA { <urn:a> <urn:p> 1, 2 }"
            subprocess.run([*SPACE, "update", text, *at], check=True, timeout=30, stdout=subprocess.DEVNULL)
            change = json.loads(watch.stdout.readline())
            assert change["added"] == [{"s": {"type": "uri", "value": "urn:a"}}]
            assert watch.wait(20) == 0
            assert [line.split(" ", 1)[1] for line in said.read_text().splitlines()] == [
                "is lost; trying again",
                "is back",
            ]
            serve.terminate()
            assert serve.wait(20) == 0
    finally:
        for process in (watch, serve):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.parametrize("arguments", [(), ("ASK {}", "--subject", "<urn:a>")])
def test_a_watch_has_a_query_or_a_mask(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*SPACE, "watch", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "--predicate" in done.stderr
