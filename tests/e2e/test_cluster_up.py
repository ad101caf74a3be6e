"""`tidegate cluster up` as somebody runs it: nodes that die, terminals that are closed, settings that are wrong."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.cluster import supervision
from tidegate.cluster.local import NodeProcess

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
UP = [sys.executable, "-m", "tidegate", "cluster", "up", "--port", "0"]


@dataclass
class Up:
    """A running `cluster up`; `pids` by name."""

    process: subprocess.Popen[str]
    pids: dict[str, int]
    addresses: dict[str, str]

    def line(self) -> str:
        """The next one about a node that fell."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().strip()


def _wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    """Ended; a zombie that nobody has asked about yet is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def _up(*arguments: str) -> Iterator[Up]:
    with subprocess.Popen(
        [*UP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stdout is not None
            nodes = [line.split() for line in iter(process.stdout.readline, "cluster ready\n")]
            yield Up(process, {node[0]: int(node[3]) for node in nodes}, {node[0]: node[1] for node in nodes})
        finally:
            process.terminate()
            process.wait(30)


def test_a_node_that_is_killed_is_started_again_at_its_address_and_the_others_go_on() -> None:
    with _up("--edges", "1", "--heads", "2") as up:
        for name in ("edge0", "head"):
            os.kill(up.pids[name], signal.SIGKILL)
            found = re.fullmatch(rf"{name} was killed by signal 9, started again: pid (\d+)", up.line())
            assert found is not None
            up.pids[name] = int(found.group(1))
            host, _, port = up.addresses[name].removeprefix("mqtt://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
            assert not any(map(_is_gone, up.pids.values()))
        began = time.monotonic()
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(30) == 0
        assert time.monotonic() - began < 10
        assert all(map(_is_gone, up.pids.values()))


def test_a_node_is_left_dead_if_that_is_wanted_and_without_nodes_there_is_nothing_to_watch() -> None:
    with _up("--edges", "1", "--no-restart") as up:
        os.kill(up.pids["edge0"], signal.SIGKILL)
        assert up.line() == "edge0 was killed by signal 9, not started again"
        assert not _is_gone(up.pids["head"])
        os.kill(up.pids["head"], signal.SIGKILL)
        assert up.line() == "head was killed by signal 9, not started again"
        assert up.line() == "error: no node is left"
        assert up.process.wait(10) == 1


def test_a_node_that_falls_again_and_again_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervision, "MAX_FALLS", 2)
    said: list[str] = []
    node = NodeProcess("n", ["--port", "0"], "", tmp_path / "log", is_bound=True)
    node.start()
    try:
        supervisor = supervision.Supervisor([node], said.append)
        while not supervisor.is_over:
            node.kill()
            supervisor.look()
        assert said == ["n was killed by signal 9, not started again after 2 new starts within 60 s"]
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--set", "cluster.interval=never"], 78, ["head did not start: cluster.interval", "hint: valid: number"]),
        (["--port", "PORT"], 3, ["head did not start", "in use", "hint:"]),
    ],
)
def test_a_cluster_that_cannot_start_says_what_its_node_said(
    arguments: list[str], status: int, words: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [*UP, *(port if each == "PORT" else each for each in arguments)]
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT
        )
    assert found.returncode == status
    for word in words:
        assert word in found.stderr
    assert ".log" not in found.stderr


def test_nodes_end_when_the_terminal_is_closed() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*UP, "--edges", "1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env=ENVIRONMENT,
    )
    os.close(theirs)
    said = ""
    try:
        while "cluster ready" not in said:
            said += os.read(ours, 4096).decode()
    finally:
        os.close(ours)
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", said)]
    assert len(pids) == 2
    process.wait(30)
    assert all(map(_is_gone, pids))


def test_nodes_end_when_the_one_who_watches_is_killed() -> None:
    with _up("--edges", "1") as up:
        up.process.kill()
        _wait_until(lambda: all(map(_is_gone, up.pids.values())))
