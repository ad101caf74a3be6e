"""`tidegate serve --console` and `tidegate demo` as people start them: processes that end, and leave nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.console.conftest import CLEAN, DEADLINE, until
from tidegate.cli.status import ExitStatus
from tidegate.testing.certificates import make_authority
from tidegate.testing.raw import RawClient


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", *arguments],
        env=CLEAN,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(DEADLINE)
        assert process.stdout is not None
        process.stdout.close()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """What it says up to the first match, and the match's first group."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found[1]
    raise AssertionError(f"it ended without {pattern!r}")


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_serve_starts_a_console_beside_the_node_and_ends_it() -> None:
    with program("serve", "--port", "0", "--console", "--console-port", "0", "--log-level", "error") as node:
        read_until(node, r"tidegate ready on (mqtt://\S+)")
        address = read_until(node, r"tidegate console on (http://\S+)")
        with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
            assert b"Tidegate" in answer.read()
        (console,) = family(node.pid)
        node.send_signal(signal.SIGINT)
        assert node.wait(DEADLINE) == ExitStatus.OK
        until(lambda: not console.is_running())


def test_a_console_ends_when_its_node_is_killed() -> None:
    with program("serve", "--port", "0", "--console", "--console-port", "0", "--log-level", "error") as node:
        read_until(node, r"tidegate console on (http://\S+)")
        (console,) = family(node.pid)
        node.kill()
        until(lambda: not console.is_running() or console.status() == psutil.STATUS_ZOMBIE)


def test_a_console_that_dies_leaves_the_node_alone() -> None:
    with program("serve", "--port", "0", "--console", "--console-port", "0", "--log-level", "error") as node:
        port = int(read_until(node, r"tidegate ready on mqtt://127.0.0.1:(\d+)"))
        read_until(node, r"tidegate console on (http://\S+)")
        (console,) = family(node.pid)
        os.kill(console.pid, signal.SIGKILL)
        publish = [sys.executable, "-m", "tidegate", "pub", "-p", str(port), "-q", "1", "-t", "t", "-m", "1"]
        assert subprocess.run(publish, env=CLEAN, timeout=DEADLINE).returncode == ExitStatus.OK
        node.terminate()
        assert node.wait(DEADLINE) == ExitStatus.OK


def test_a_node_with_accounts_lets_its_console_in(password_file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret-a\n")
    settings = (
        f"accounts.password_file={password_file}",
        *("listeners.0.type=tls", f"listeners.0.certfile={tmp_path}/localhost.crt"),
        *(f"listeners.0.keyfile={tmp_path}/localhost.key", "listeners.0.port=0", "listeners.1.port=0"),
    )
    certificate = make_authority(tmp_path).issue("localhost")
    certificate.certificate.rename(tmp_path / "localhost.crt")
    certificate.key.rename(tmp_path / "localhost.key")
    arguments = [part for each in settings for part in ("--set", each)]
    account = ("--console-username", "ada", "--console-password-file", str(secret))
    with program("serve", *arguments, "--console", "--console-port", "0", *account) as node:
        address = read_until(node, r"tidegate console on (http://\S+)/")
        assert _is_connected(address, _log_in(address))


@pytest.mark.parametrize(
    "settings, words",
    [
        (["operator_socket=none", "accounts.password_file=ACCOUNTS"], "--console-username"),
        (["operator_socket=none", "listeners.0.proxy_protocol=true"], "for this machine"),
    ],
)
def test_a_console_that_its_node_would_not_let_in_is_not_started(
    password_file: Path, settings: list[str], words: str
) -> None:
    given = [part for each in settings for part in ("--set", each.replace("ACCOUNTS", str(password_file)))]
    with program("serve", "--port", "0", "--console", *given) as node:
        assert node.wait(DEADLINE) == ExitStatus.STARTUP
        assert node.stdout is not None
        error, hint = node.stdout.read().splitlines()
        assert error.startswith("error: the ") and words in hint


def test_a_console_without_an_account_comes_as_the_operator(password_file: Path) -> None:
    given = ("--set", f"accounts.password_file={password_file}")
    with program("serve", "--port", "0", "--console", "--console-port", "0", *given) as node:
        address = read_until(node, r"tidegate console on (http://\S+)/")
        assert _is_connected(address, _log_in(address))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/api/live", timeout=DEADLINE)


def _log_in(address: str) -> str:
    """The cookie of ada's session."""
    user = {"user": "ada", "password": "secret-a"}
    login = urllib.request.Request(f"{address}/api/login", json.dumps(user).encode())
    login.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(login, timeout=DEADLINE) as answer:
        return str(answer.headers["Set-Cookie"]).partition(";")[0]


def _is_connected(address: str, cookie: str) -> bool:
    live = urllib.request.Request(f"{address}/api/live", headers={"Cookie": cookie})
    with urllib.request.urlopen(live, timeout=DEADLINE) as events:
        return any(b'"is_connected":true' in line for line in events)


def test_a_console_that_hangs_does_not_hold_up_the_end_of_its_node() -> None:
    with program("serve", "--port", "0", "--console", "--console-port", "0") as node:
        port = int(read_until(node, r"tidegate ready on mqtt://127.0.0.1:(\d+)"))
        read_until(node, r"tidegate console on (http://\S+)")
        (console,) = family(node.pid)
        with RawClient(port) as client:
            client.connect("meter")
            console.suspend()
            node.terminate()
            read_until(node, r"(stopping)")
            began = time.monotonic()
            client.publish("t", b"1", qos=1)
            assert time.monotonic() - began < 2.0
        assert node.wait(DEADLINE) == ExitStatus.OK
        until(lambda: has_ended(console))


def test_the_demo_tells_its_story_and_ends() -> None:
    arguments = ("demo", "--port", "0", "--http-port", "0", "--sensors", "20", "--once", "--pace", "0.05")
    with program(*arguments) as demo:
        address = read_until(demo, r"console  (http://\S+/)")
        assert read_until(demo, r"(A calm plant)")
        with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
            assert answer.status == 200
        assert read_until(demo, r"look at (\S+#/groups)") == f"{address}#/groups"
        assert read_until(demo, r"look at (\S+#/publishers)") == f"{address}#/publishers"
        assert read_until(demo, r"look at (\S+#/rpc)") == f"{address}#/rpc"
        assert read_until(demo, r"look at (http://\S+/)#/cluster") != address  # the cluster has a page of its own
        bursting = read_until(demo, r"a burst: .* more than (\S+) can send")
        source = read_until(demo, r"10 subscribers of news/\d moved from (\S+) to edge\d")
        assert source == bursting
        assert int(read_until(demo, r"headlines made \d+ deliveries, and (\d+) were lost")) == 0
        read_until(demo, r"(stopping)")
        assert demo.wait(DEADLINE) == ExitStatus.OK


def test_a_demo_that_cannot_start_says_why_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with program("demo", "--port", str(port), "--no-console") as demo:
            assert demo.wait(DEADLINE) == ExitStatus.FAILURE
            assert demo.stdout is not None
            *_, error, hint = demo.stdout.read().splitlines()
    assert error.startswith("error: the node did not do its part: ") and str(port) in error
    assert hint.startswith("hint: stop the other process")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_demo_ends_cleanly_when_it_is_interrupted(number: signal.Signals) -> None:
    with program("demo", "--port", "0", "--http-port", "0", "--sensors", "5") as demo:
        read_until(demo, r"(A calm plant)")
        started = family(demo.pid)
        assert len(started) == 4  # node, console, plant, flood
        demo.send_signal(number)
        assert demo.wait(DEADLINE) == ExitStatus.OK
        until(lambda: not any(each.is_running() for each in started))


@pytest.mark.parametrize("words, pace, least", [("A calm plant", "1", 4), ("a burst", "0.05", 12)])
def test_the_demo_leaves_nothing_behind_when_it_is_killed(words: str, pace: str, least: int) -> None:
    """`least`: node, console, plant and flood; with the cluster three nodes, a console and a crowd more, and RPC."""
    with program("demo", "--port", "0", "--http-port", "0", "--sensors", "5", "--pace", pace) as demo:
        read_until(demo, f"({words})")
        started = family(demo.pid)
        assert len(started) == least
        demo.kill()
        until(lambda: all(has_ended(each) for each in started))


def has_ended(process: psutil.Process) -> bool:
    """Whoever inherits it may not have asked yet how it ended."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
