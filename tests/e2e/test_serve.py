"""`tidegate serve` as its clients see it: how it says goodbye, what a reload changes for them, what is counted."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.status import ExitStatus
from tidegate.mqtt import Connack, Disconnect, Property, Publish, ReasonCode
from tidegate.testing.certificates import make_authority
from tidegate.testing.raw import RawClient

DEADLINE = 30.0
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


class Serving:
    """A broker process whose output goes to files, which can be read at any time and never fill up."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._out, self._err = folder / "out", folder / "err"
        command = [sys.executable, "-m", "tidegate", "serve", *map(str, arguments)]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, env=CLEAN, stdout=out, stderr=err)

    def wait_ready(self) -> str:
        self._wait(lambda: self._out.read_text().endswith("\n"), "the ready line")
        return self._out.read_text()

    def wait_logged(self, message: str, times: int = 1) -> dict[str, Any]:
        """The newest log line with this message, once there are so many."""
        self._wait(lambda: len(self._logged(message)) >= times, f"the log line {message!r}")
        return self._logged(message)[-1]

    def _logged(self, message: str) -> list[dict[str, Any]]:
        lines = [line for line in self._err.read_text().splitlines(keepends=True) if line.endswith("}\n")]
        return [entry for entry in map(json.loads, lines) if entry["message"] == message]

    def wait_exit(self) -> int:
        return self.process.wait(DEADLINE)

    def output(self) -> str:
        return self._out.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _wait(self, is_true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not is_true():
            assert self.process.poll() is None, f"ended without {what}: {self._err.read_text()}"
            assert time.monotonic() < end, f"{what} did not come in time: {self._err.read_text()}"
            time.sleep(0.02)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    with ExitStack() as stack:

        def start(*arguments: object) -> Serving:
            made = Serving(tmp_path, *arguments)
            stack.callback(made.close)
            return made

        yield start


def port_of(ready: str, scheme: str = "mqtt") -> int:
    found = re.search(rf"\b{scheme}://127\.0\.0\.1:(\d+)", ready)
    assert found, ready
    return int(found[1])


def maximum_packet_size(connack: Connack) -> int:
    return int(connack.properties[Property.MAXIMUM_PACKET_SIZE])


# -- starting and stopping ------------------------------------------------------------------------------------


def test_standard_output_is_the_ready_line_and_nothing_else(serving: Callable[..., Serving]) -> None:
    broker = serving("--port", 0, "--log-level", "debug")
    ready = broker.wait_ready()
    with RawClient(port_of(ready)) as client:
        client.connect()
        client.publish("a", b"x", qos=1)
        client.disconnect()
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait_exit() == ExitStatus.OK
    assert broker.output() == ready
    assert ready.count("\n") == 1


def test_the_port_in_the_ready_line_is_the_one_that_was_free(serving: Callable[..., Serving]) -> None:
    with ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("127.0.0.1", 1883)))
        except OSError:
            pass  # somebody else has it, which is as good
        ready = serving().wait_ready()
        with RawClient(port_of(ready)) as client:
            assert client.connect().reason_code == ReasonCode.SUCCESS


def test_sigterm_tells_mqtt_5_clients_that_the_server_shuts_down(serving: Callable[..., Serving]) -> None:
    broker = serving("--port", 0)
    port = port_of(broker.wait_ready())
    with RawClient(port, 5) as new, RawClient(port, 4) as old, RawClient(port, 5) as unfinished:
        new.connect()
        old.connect()
        broker.process.send_signal(signal.SIGTERM)
        goodbye = new.expect_closed(DEADLINE)
        assert goodbye is not None
        assert goodbye.reason_code == ReasonCode.SERVER_SHUTTING_DOWN
        # 3.1.1 has no DISCONNECT from a server, and this one had not said CONNECT.
        assert (old.expect_closed(DEADLINE), unfinished.expect_closed(DEADLINE)) == (None, None)
        assert (list(new.inbox), list(old.inbox), list(unfinished.inbox)) == ([], [], [])
        assert broker.wait_exit() == ExitStatus.OK


def test_what_was_acknowledged_is_delivered_before_the_goodbye(serving: Callable[..., Serving]) -> None:
    broker = serving("--port", 0)
    port = port_of(broker.wait_ready())
    with RawClient(port) as subscriber, RawClient(port) as publisher:
        subscriber.connect()
        subscriber.subscribe("last/words", qos=1)
        publisher.connect()
        for number in range(200):
            publisher.publish("last/words", str(number).encode() + bytes(1000), qos=1)
        broker.process.send_signal(signal.SIGTERM)
        subscriber.expect_closed(DEADLINE)
        payloads = [packet.payload for packet in subscriber.inbox if isinstance(packet, Publish)]
    assert payloads == [str(number).encode() + bytes(1000) for number in range(200)]
    assert broker.wait_exit() == ExitStatus.OK


def test_a_client_that_does_not_read_cannot_hold_up_the_end(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    broker = serving("--port", 0, "--set", "shutdown_timeout=1")
    port = port_of(broker.wait_ready())
    with RawClient(port) as deaf, RawClient(port) as publisher:
        deaf.connect()
        deaf.subscribe("flood")
        publisher.connect()
        for _ in range(60):
            publisher.publish("flood", bytes(200_000), qos=1)
        broker.process.send_signal(signal.SIGTERM)
        publisher.take(Disconnect, reason_code=ReasonCode.SERVER_SHUTTING_DOWN)
        assert broker.wait_exit() == ExitStatus.OK


def test_a_broken_file_is_a_refused_setting_and_nothing_is_started(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[limits\nmax_packet_size = 2000\n")
    command = [sys.executable, "-m", "tidegate", "serve", "-c", str(path), "--port", "0"]
    result = subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=DEADLINE)
    assert (result.returncode, result.stdout) == (ExitStatus.CONFIG, "")
    assert str(path) in result.stderr
    assert "Traceback" not in result.stderr


# -- reloading ------------------------------------------------------------------------------------------------


def test_sighup_changes_limits_for_new_clients_and_keeps_promises_to_old_ones(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("[limits]\nmax_packet_size = 2000\n")
    broker = serving("--config", path, "--port", 0)
    port = port_of(broker.wait_ready())
    with RawClient(port) as old, RawClient(port) as new:
        assert maximum_packet_size(old.connect()) == 2000
        path.write_text("[limits]\nmax_packet_size = 3000\n[features]\nmaximum_qos = 1\n")
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_logged("settings reloaded")
        connack = new.connect()
        assert maximum_packet_size(connack) == 3000
        assert connack.properties[Property.MAXIMUM_QOS] == 1
        old.publish("a", bytes(1900), qos=1)
        new.publish("a", bytes(2900), qos=1)
        assert (old.barrier(), new.barrier()) == ([], [])


@pytest.mark.parametrize(
    "text",
    ["[limits\n", "[limits]\nmax_packet_sise = 3000\n", '[limits]\nmax_packet_size = "large"\n', None],
    ids=["not TOML", "misspelt key", "wrong type", "no file"],
)
def test_a_reload_that_fails_keeps_every_old_setting_and_says_why(
    serving: Callable[..., Serving], tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("[limits]\nmax_packet_size = 2000\n")
    broker = serving("--config", path, "--port", 0)
    port = port_of(broker.wait_ready())
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
        with pytest.raises((tomllib.TOMLDecodeError, AssertionError)):
            assert tomllib.loads(text) == {"limits": {"max_packet_size": 3000}}
    broker.process.send_signal(signal.SIGHUP)
    assert str(path) in broker.wait_logged("settings not reloaded, the old ones stay")["error"]
    with RawClient(port) as client:
        assert maximum_packet_size(client.connect()) == 2000

    path.write_text("[limits]\nmax_packet_size = 4000\n")  # and the next attempt is as good as the first
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_logged("settings reloaded")
    with RawClient(port) as client:
        assert maximum_packet_size(client.connect()) == 4000


def test_options_of_the_command_line_still_win_after_a_reload(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("[limits]\nmax_packet_size = 2000\n")
    broker = serving("--config", path, "--port", 0, "--set", "limits.max_packet_size=5000")
    port = port_of(broker.wait_ready())
    path.write_text("[limits]\nmax_packet_size = 3000\n")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_logged("settings reloaded")
    with RawClient(port) as client:
        assert maximum_packet_size(client.connect()) == 5000


def test_sighup_takes_a_renewed_certificate_without_disturbing_clients(
    serving: Callable[..., Serving], tmp_path: Path
) -> None:
    authority = make_authority(tmp_path / "authority")
    issued = authority.issue("server")
    path = tmp_path / "tls.toml"
    path.write_text(
        "[[listeners]]\nport = 0\n[[listeners]]\ntype = 'tls'\nport = 0\n"
        f"certfile = '{issued.certificate}'\nkeyfile = '{issued.key}'\n"
    )
    broker = serving("--config", path)
    ready = broker.wait_ready()
    trust = ssl.create_default_context(cafile=str(authority.certificate))

    def serial_number() -> object:
        plain = socket.create_connection(("127.0.0.1", port_of(ready, "mqtts")), DEADLINE)
        with plain, trust.wrap_socket(plain, server_hostname="localhost") as wrapped:
            certificate = wrapped.getpeercert()
            assert certificate is not None
            return certificate["serialNumber"]

    before = serial_number()
    with RawClient(port_of(ready)) as client:
        client.connect()
        authority.issue("server")  # the same two files, a new certificate
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_logged("settings reloaded")
        assert serial_number() != before
        assert client.barrier() == []


# -- metrics --------------------------------------------------------------------------------------------------


def test_the_metrics_page_counts_exactly(serving: Callable[..., Serving]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        metrics_port = probe.getsockname()[1]
    port = port_of(serving("--port", 0, "--metrics-port", metrics_port).wait_ready())

    def metrics() -> dict[str, float]:
        url = f"http://127.0.0.1:{metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=DEADLINE) as page:
            text = page.read().decode()
        found = re.findall(r"^(tidegate_\w+)(?:\{[^}]*\})? (\S+)$", text, flags=re.MULTILINE)
        return {name: float(value) for name, value in found}

    with RawClient(port) as client:
        client.connect()
        client.subscribe("counted", qos=1)
        for number in range(30):
            client.publish("counted", b"x", number % 3)
            client.acknowledge(client.take(Publish))
        client.barrier()
        counted = metrics()
    assert counted["tidegate_connections"] == 1
    assert counted["tidegate_subscriptions"] == 1
    assert counted["tidegate_publish_received_total"] == 30
    assert counted["tidegate_publish_sent_total"] == 30
    assert counted["tidegate_dropped_total"] == 0
    assert counted["tidegate_protocol_errors_total"] == 0
