"""`tidegate serve` as a service manager sees it: ready line, signals, exit codes."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tidegate.cli.status import ExitStatus

DEADLINE = 30.0
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


class Serving:
    """A broker process, its standard output and error read line by line with a deadline."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tidegate", "serve", *map(str, arguments)]
        self.process = subprocess.Popen(command, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._unread: dict[IO[bytes], bytes] = {self.process.stdout: b"", self.process.stderr: b""}

    def wait_ready(self) -> str:
        return self._wait_line(self.process.stdout, lambda line: line.startswith("tidegate ready on "))

    def wait_logged(self, message: str) -> dict[str, object]:
        def is_it(line: str) -> bool:
            return line.startswith("{") and json.loads(line)["message"] == message

        return json.loads(self._wait_line(self.process.stderr, is_it))

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_exit(self) -> int:
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _wait_line(self, stream: IO[bytes] | None, is_wanted: Callable[[str], bool]) -> str:
        assert stream is not None
        end = time.monotonic() + DEADLINE
        while True:
            line, newline, rest = self._unread[stream].partition(b"\n")
            if newline:
                self._unread[stream] = rest
                if is_wanted(line.decode()):
                    return line.decode()
                continue
            assert select.select([stream], [], [], max(0.0, end - time.monotonic()))[0], (
                "no such line in time"
            )
            data = os.read(stream.fileno(), 65_536)
            assert data, "the process ended without such a line"
            self._unread[stream] += data


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: object) -> Serving:
        started.append(Serving(*arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()


def mqtt_port(ready: str) -> int:
    found = re.search(r"mqtt://127\.0\.0\.1:(\d+)", ready)
    assert found, ready
    return int(found[1])


def mosquitto(program: str, port: int, *arguments: str) -> str:
    command = [f"mosquitto_{program}", "-h", "127.0.0.1", "-p", str(port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout


def test_a_message_goes_through_a_served_broker(serving) -> None:
    port = mqtt_port(serving("--port", 0).wait_ready())
    # Retained, so that it does not matter which of the two clients is there first.
    mosquitto("pub", port, "-t", "tide/level", "-m", "3.2", "-r", "-q", "1")
    assert mosquitto("sub", port, "-t", "tide/#", "-v", "-C", "1", "-W", "20") == "tide/level 3.2\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_gracefully(serving, number: signal.Signals) -> None:
    broker = serving("--port", 0)
    port = mqtt_port(broker.wait_ready())
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client:
        broker.send(number)
        assert broker.wait_exit() == ExitStatus.OK
        assert client.recv(1) == b""


def test_a_named_port_that_is_taken_is_a_failure_to_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, "-m", "tidegate", "serve", "--port", str(port)]
        result = subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=DEADLINE)
    assert (result.returncode, result.stdout) == (ExitStatus.STARTUP, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert str(port) in error
    assert hint.startswith("hint: ")


def test_a_default_port_that_is_taken_gives_way_to_the_next_free_one(serving) -> None:
    try:
        blocker: socket.socket | None = socket.create_server(("127.0.0.1", 1883))
    except OSError:
        blocker = None  # somebody else has it, which is as good
    try:
        broker = serving()
        assert mqtt_port(broker.wait_ready()) > 1883
        assert broker.wait_logged("port taken, using the next free one")["wanted"] == 1883
    finally:
        if blocker is not None:
            blocker.close()


def test_certificates_that_cannot_be_read_are_a_failure_to_start(tmp_path: Path) -> None:
    path = tmp_path / "tls.toml"
    path.write_text(
        '[[listeners]]\ntype = "tls"\nport = 0\ncertfile = "absent.crt"\nkeyfile = "absent.key"\n'
    )
    command = [sys.executable, "-m", "tidegate", "serve", "-c", str(path)]
    result = subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=DEADLINE)
    assert result.returncode == ExitStatus.STARTUP
    assert "absent" in result.stderr
    assert "Traceback" not in result.stderr


def test_metrics_are_served_where_they_were_asked_for(serving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert f"http://127.0.0.1:{port}/metrics" in serving("--port", 0, "--metrics-port", port).wait_ready()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as page:
        assert b"tidegate_connections " in page.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=DEADLINE) as page:
        assert page.read() == b"Tidegate: the metrics are at /metrics\n"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metric", timeout=DEADLINE)
    with caught.value as refusal:
        assert (refusal.code, b"/metrics" in refusal.read()) == (404, True)


def test_a_websocket_listener_is_named_in_the_ready_line(serving) -> None:
    assert "ws://127.0.0.1:" in serving("--port", 0, "--websocket-port", 0).wait_ready()


def test_sighup_reads_the_file_again_and_keeps_the_old_settings_if_it_is_wrong(
    serving, tmp_path: Path
) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("[limits]\nmax_packet_size = 2000\n")
    broker = serving("--config", path, "--port", 0)
    port = mqtt_port(broker.wait_ready())

    path.write_text("[limits]\nmax_packet_sise = 3000\n")
    broker.send(signal.SIGHUP)
    assert "max_packet_sise" in str(broker.wait_logged("settings not reloaded, the old ones stay")["error"])

    path.write_text("[limits]\nmax_packet_size = 3000\n")
    broker.send(signal.SIGHUP)
    broker.wait_logged("settings reloaded")
    mosquitto("pub", port, "-t", "a", "-m", "still here", "-q", "1")


def test_the_environment_names_settings_for_serve(serving) -> None:
    command = [sys.executable, "-m", "tidegate", "serve", "--port", "0"]
    environ = CLEAN | {"TIDEGATE_LOG__LEVEL": "loud"}
    result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE)
    assert result.returncode == ExitStatus.CONFIG
    assert "TIDEGATE_LOG__LEVEL" in result.stderr
