"""`tidegate pub` and `tidegate sub` as people use them: processes, pipes, exit codes."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.integration.client.servers import mosquitto
from tidegate.broker.listener import Listener
from tidegate.net.tls import server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority
from tidegate.testing.ports import free_port
from tidegate.testing.raw import RawClient

DEADLINE = 30.0
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


@pytest.fixture(params=["mosquitto", "tidegate"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    if request.param == "mosquitto":
        with mosquitto(tmp_path) as number:
            yield number
    else:
        with BrokerThread() as broker:
            yield broker.port


def pub(*arguments: object, input: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tidegate", "pub", *map(str, arguments)]
    return subprocess.run(
        command, input=input, capture_output=True, timeout=DEADLINE, env=CLEAN | environ, check=False
    )


class Sub:
    """A `tidegate sub`; a retained message it prints first tells that it is subscribed."""

    def __init__(self, port: int, *arguments: object, **environ: str) -> None:
        command = [sys.executable, "-m", "tidegate", "sub", "-p", port, *arguments]
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN | environ
        )

    def read_line(self) -> bytes:
        assert self.process.stdout is not None
        return _read_line(self.process.stdout)

    def finish(self) -> tuple[int, bytes, bytes]:
        output, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output, errors


def _read_line(stream: IO[bytes]) -> bytes:
    end = time.monotonic() + DEADLINE
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"no line within {DEADLINE} s, only {line!r}"
        byte = os.read(stream.fileno(), 1)
        if not byte:
            return line
        line += byte
    return line


@pytest.fixture
def retained(port: int) -> int:
    """Three retained messages, so that a subscriber has something to print whenever it comes."""
    with RawClient(port) as publisher:
        publisher.connect()
        for topic, payload in (("r/a", b"one"), ("r/b", b"two"), ("r/secret", b"three")):
            publisher.publish(topic, payload, qos=1, retain=True)
        publisher.disconnect()
    return port


def test_what_is_published_is_printed(retained: int) -> None:
    subscriber = Sub(retained, "-t", "r/a", "-t", "new/#", "-q", 2, "-C", 4, "-v")
    assert subscriber.read_line() == b"r/a one\n"
    assert pub("-p", retained, "-t", "new/1", "-m", "zero").returncode == 0
    assert pub("-p", retained, "-t", "new/2", "-q", 2, "-s", input=b"from\nstdin").returncode == 0
    assert pub("-p", retained, "-t", "new/3", "-q", 1, "-n", "-V", "3.1.1").returncode == 0
    assert subscriber.finish() == (0, b"new/1 zero\nnew/2 from\nstdin\nnew/3 \n", b"")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_line_of_standard_input_is_a_message_in_order(retained: int, qos: int) -> None:
    subscriber = Sub(retained, "-t", "r/a", "-t", "lines", "-q", qos, "-C", 2001)
    assert subscriber.read_line() == b"one\n"
    lines = b"\n".join(b"line %d" % index for index in range(2000))
    published = pub("-p", retained, "-t", "lines", "-q", qos, "-l", "-v", input=lines)
    assert (published.returncode, published.stderr) == (0, b"2000 message(s) sent to lines\n")
    assert subscriber.finish() == (0, lines + b"\n", b"")


def test_repeat_file_and_alias(retained: int, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"in a file")
    subscriber = Sub(retained, "-t", "r/a", "-t", "f", "-C", 4)
    assert subscriber.read_line() == b"one\n"
    published = pub(
        *("-p", retained, "-t", "f", "-f", tmp_path / "payload", "--repeat", 3, "--interval", 0.01),
        *("--topic-alias", 1),
    )
    assert published.returncode == 0
    assert subscriber.finish() == (0, b"in a file\n" * 3, b"")


def test_properties_go_through_and_json_shows_them(retained: int) -> None:
    subscriber = Sub(retained, "-t", "r/a", "-t", "p", "-C", 2, "--json", "--identifier", 9)
    assert json.loads(subscriber.read_line())["retain"] is True
    published = pub(
        *(
            "-p",
            retained,
            "-t",
            "p",
            "-m",
            "text",
            "--content-type",
            "text/plain",
            "--response-topic",
            "back",
        ),
        *("--correlation-data", "id", "--expiry", 100, "--text", "-D", "a=b", "-D", "c=d=e"),
    )
    assert published.returncode == 0
    _, output, _ = subscriber.finish()
    found = json.loads(output)
    assert (found["topic"], found["payload"], found["qos"], found["length"]) == ("p", "text", 0, 4)
    properties = found["properties"]
    assert properties.pop("message_expiry_interval") in (99, 100)
    assert properties == {
        "content_type": "text/plain",
        "response_topic": "back",
        "correlation_data": "aWQ=",
        "payload_format_indicator": 1,
        "user_property": [["a", "b"], ["c", "d=e"]],
        "subscription_identifier": [9],
    }


@pytest.mark.parametrize(
    "options, expected",
    [
        (("-t", "r/+", "-T", "r/secret", "-F", "%t=%p %r", "-C", 2), b"r/a=one 1\nr/b=two 1\n"),
        (("-t", "r/a", "-N", "-F", "%x\\t%q", "-C", 1), b"6f6e65\t0"),
        (("-t", "r/a", "-R", "-W", 0.5), b""),
    ],
    ids=["filter-out", "format", "no-retained"],
)
def test_output_can_be_chosen(retained: int, options: tuple[object, ...], expected: bytes) -> None:
    status, output, errors = Sub(retained, *options).finish()
    assert (status, errors) == (0, b"")
    assert b"".join(sorted(output.splitlines(keepends=True))) == expected


def test_retained_only_ends_at_the_first_new_message(retained: int) -> None:
    subscriber = Sub(retained, "-t", "r/a", "--retained-only")
    assert subscriber.read_line() == b"one\n"
    assert pub("-p", retained, "-t", "r/a", "-m", "new").returncode == 0
    assert subscriber.finish() == (0, b"", b"")


def test_output_can_go_to_files(retained: int, tmp_path: Path) -> None:
    status, output, _ = Sub(retained, "-t", "r/+", "-C", 3, "-v", "-o", tmp_path / "log").finish()
    assert (status, output) == (0, b"")
    assert sorted((tmp_path / "log").read_bytes().splitlines()) == [b"r/a one", b"r/b two", b"r/secret three"]
    folder = tmp_path / "messages"
    assert Sub(retained, "-t", "r/+", "-C", 3, "--output-dir", folder).finish()[0] == 0
    assert sorted(file.name[7:] for file in folder.iterdir()) == ["r_a", "r_b", "r_secret"]
    assert sorted(file.read_bytes() for file in folder.iterdir()) == [b"one", b"three", b"two"]


def test_a_timeout_before_the_count_is_a_failure(port: int) -> None:
    words = b"0 of 1 messages came in 0.2 s\n"
    assert Sub(port, "-t", "t", "-W", 0.2, "-C", 1).finish() == (1, b"", words)


def test_a_session_is_kept_for_its_identifier(port: int) -> None:
    options = ("-t", "t", "-q", 1, "-i", "keeper", "-c", "-x", 300)
    assert Sub(port, *options, "-W", 0).finish()[0] == 0
    assert pub("-p", port, "-t", "t", "-m", "meanwhile", "-q", 1).returncode == 0
    assert Sub(port, *options, "-C", 1).finish() == (0, b"meanwhile\n", b"")


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_cleanly_with_a_goodbye(retained: int, number: signal.Signals, status: int) -> None:
    with RawClient(retained) as watcher:
        watcher.connect()
        watcher.subscribe("will")
        subscriber = Sub(retained, "-t", "r/a", "--will-topic", "will", "--will-payload", "vanished")
        assert subscriber.read_line() == b"one\n"
        subscriber.process.send_signal(number)
        assert subscriber.finish() == (status, b"", b"")
        watcher.expect_nothing()


def test_a_closed_pipe_ends_cleanly(retained: int) -> None:
    subscriber = Sub(retained, "-t", "r/a", "-t", "more")
    assert subscriber.read_line() == b"one\n"
    assert subscriber.process.stdout is not None
    subscriber.process.stdout.close()
    assert pub("-p", retained, "-t", "more", "-m", "nobody reads this").returncode == 0
    assert subscriber.process.stderr is not None
    assert subscriber.process.wait(DEADLINE) == 0
    assert subscriber.process.stderr.read() == b""
    subscriber.process.stderr.close()


def test_failure_is_a_line_a_hint_and_a_status() -> None:
    port = free_port()
    result = pub("-p", port, "-t", "t", "-m", "x")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        b"error: cannot connect to mqtt://localhost:%d: nobody listens there" % port,
        b"hint: start the broker or correct the port",
    ]
    assert pub("-p", port, "-t", "t", "-m", "x", "--quiet").stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("-t", "t"),
        ("-t", "t", "-m", "x", "-n"),
        ("-m", "x"),
        ("-t", "t", "-m", "x", "-q", "3"),
        ("-t", "t", "-m", "x", "-V", "2"),
        ("-t", "t", "-m", "x", "-D", "nameless"),
        ("-t", "t", "-f", "/does/not/exist"),
        ("-t", "t", "-m", "x", "--url", "mqtt://localhost", "--insecure"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = pub(*arguments)
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr


def test_passwords_come_from_option_file_or_environment(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    subprocess.run(
        ["mosquitto_passwd", "-b", str(passwords), "ann", "open sesame"], check=True, timeout=DEADLINE
    )
    (tmp_path / "secret").write_text("open sesame\n")
    with mosquitto(tmp_path, f"password_file {passwords}", anonymous=False) as port:
        base = ("-p", port, "-t", "t", "-m", "x", "-q", 1)
        assert pub(*base, "-u", "ann", "-P", "open sesame").returncode == 0
        assert pub(*base, "-u", "ann", "--password-file", tmp_path / "secret").returncode == 0
        assert pub(*base, "-u", "ann", TIDEGATE_PASSWORD="open sesame").returncode == 0
        refused = pub(*base, "-u", "ann", "-P", "wrong")
        assert refused.returncode == 1
        assert b"hint: " in refused.stderr
        assert b"wrong" not in refused.stderr


def test_tls_and_websocket_work_from_the_command_line(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = authority.issue("server")
    listeners = [
        Listener(port=0, tls=server_context(certificate, key)),
        Listener(port=0, websocket=WebSocketOptions()),
    ]
    with BrokerThread(listeners=listeners) as broker:
        tls, websocket = [endpoint.port for endpoint in broker.call(lambda: broker.broker.endpoints)]
        url = f"ws://127.0.0.1:{websocket}/mqtt"
        assert pub("-L", url, "-t", "t", "-m", "by websocket", "-r", "-q", 1).returncode == 0
        secure = ("-H", "127.0.0.1", "-t", "t", "-C", 1)
        assert Sub(tls, *secure, "--cafile", authority.certificate).finish() == (0, b"by websocket\n", b"")
        assert Sub(tls, *secure, "--tls", "--insecure").finish()[1] == b"by websocket\n"
        untrusted = Sub(tls, *secure, "--tls").finish()
        assert untrusted[0] == 1
        assert b"not trusted" in untrusted[2]
