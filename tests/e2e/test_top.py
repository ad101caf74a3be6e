"""`tidegate top` as people use it: a process on a terminal or in a pipe, against a real broker."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.client.servers import mosquitto
from tidegate.broker.settings import Features
from tidegate.cli.status import ExitStatus
from tidegate.mqtt import Publish
from tidegate.mqtt.properties import Properties, Property
from tidegate.testing import BrokerThread
from tidegate.testing.ports import free_port
from tidegate.testing.raw import RawClient

DEADLINE = 30.0
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
COMMAND = [sys.executable, "-m", "tidegate", "top"]
LOAD = {"state": "HIGH", "lag_ms": 3.5, "memory_share": 0.1, "queue_share": 0.0, "waiting": 0, "held": 1}


def top(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        stdin=subprocess.DEVNULL,
    )


def quiet_node(**options: object) -> BrokerThread:
    """A node that makes no reports of its own, so that a test decides what there is to see."""
    return BrokerThread(features=Features(sys_interval=0), **options)


def publish_reports(broker: BrokerThread, *clients: str) -> None:
    """Reports as a node makes them, retained so that it does not matter when `top` comes."""
    publishers = [
        {"client": client, "user": None, "address": "127.0.0.1", "rate": 5.0, "trained_rate": 2.0}
        | {"dispersion": 0.1, "state": "held", "hold": 1.5, "rank": 1, "class": None, "held_bytes": 9}
        for client in clients
    ]
    queues = [
        {"client": f"{client}-reader", "connected": False, "queued_messages": 12, "queued_bytes": 1200}
        | {"inflight": 0, "dropped": 0, "is_blocked": False}
        for client in clients
    ]
    members = [
        {"client": f"{client}-worker", "connected": True, "is_stalled": False, "outstanding": 2}
        | {"service_ms": 10.0, "wait_ms": 20.0, "share": 1.0, "reports": True}
        for client in clients
    ]
    group = {"group": "crew", "filter": "jobs/+", "policy": "earliest_finish", "total": len(members)}
    group |= {"connected": len(members), "outstanding": 2, "moved": 0, "members": members}
    reports = {
        "load": LOAD,
        "publishers": {"at": time.time(), "total": len(publishers), "rows": publishers},
        "queues": {"at": time.time(), "total": len(queues), "rows": queues},
        "groups": {"at": time.time(), "total": 1, "rows": [group]},
    }

    def publish() -> None:
        for name, document in reports.items():
            broker.broker.publish(f"$SYS/tide/{name}", json.dumps(document).encode(), retain=True)

    broker.call(publish)


class Terminal:
    """A `top` on a terminal of its own, 120 columns wide."""

    def __init__(self, *arguments: object) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (30, 120))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env=CLEAN | {"TERM": "xterm"},
            stdin=self.slave,
            stdout=self.slave,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.output = ""

    def wait_for(self, text: str) -> None:
        """Wait until the text is drawn, colours left aside; what came before does not count next time."""
        end = time.monotonic() + DEADLINE
        while text not in (shown := re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.output)):
            ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} was not drawn, only {shown[-3000:]!r}"
            self.output += os.read(self.master, 65_536).decode(errors="replace")
        self.output = ""

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def wait_end(self) -> int:
        end = time.monotonic() + DEADLINE
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:  # or it waits for us to read
                self.output += os.read(self.master, 65_536).decode(errors="replace")
        while select.select([self.master], [], [], 0)[0]:
            self.output += os.read(self.master, 65_536).decode(errors="replace")
        return self.process.wait(1)


@contextmanager
def terminal(*arguments: object) -> Iterator[Terminal]:
    window = Terminal(*arguments)
    try:
        yield window
    finally:
        window.process.kill()
        window.process.communicate()
        os.close(window.master)
        os.close(window.slave)


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A node with a publisher that stays, and a queue of three messages for somebody who is away."""
    expiry: Properties = {Property.SESSION_EXPIRY_INTERVAL: 3600}
    with BrokerThread(name="harbour") as broker:
        with RawClient(broker.port) as reader:
            reader.connect("keeper", properties=expiry)
            reader.subscribe("plant/#", qos=1)
            reader.disconnect()
        with RawClient(broker.port) as meter:
            meter.connect("meter-7")
            for number in range(3):
                meter.publish("plant/level", b"%d" % number, qos=1)
            yield broker.port


def test_in_a_pipe_one_picture_of_the_node_is_printed(busy_port: int) -> None:
    result = top("-p", busy_port)
    assert (result.returncode, result.stderr) == (ExitStatus.OK, "")
    text = result.stdout.replace("\N{NO-BREAK SPACE}", " ")
    for part in ("harbour", "publishers: 1", "queues: 1"):
        assert part in text
    assert any(state in text for state in ("LOW", "HIGH", "OVERLOAD"))  # the machine may be busy with other tests
    (publisher,) = [line for line in text.splitlines() if line.startswith("meter-7")]
    assert "127.0.0.1" in publisher
    (queue,) = [line for line in text.splitlines() if line.startswith("keeper")]
    assert queue.split()[1:3] == ["no", "3"]
    assert "\x1b" not in text


def test_groups_are_shown_with_their_members(busy_port: int) -> None:
    with RawClient(busy_port) as anna, RawClient(busy_port) as bert, RawClient(busy_port) as publisher:
        for client, name in ((anna, "anna"), (bert, "bert")):
            client.connect(name)
            client.subscribe("$share/crew/jobs/+", qos=1)
        publisher.connect("foreman")
        for number in range(4):
            publisher.publish("jobs/1", b"%d" % number, qos=1)
        anna.acknowledge(anna.take(Publish))
        document = json.loads(top("-p", busy_port, "--json").stdout)
        result = top("-p", busy_port, "--view", "groups")
    (group,) = document["groups"]["rows"]
    assert [group[name] for name in ("group", "filter", "total", "connected", "outstanding", "moved")] == [
        *("crew", "jobs/+", 2, 2, 3, 0)
    ]
    assert [row["client"] for row in group["members"]] == ["anna", "bert"]
    assert sum(row["share"] for row in group["members"]) == 1.0
    assert (result.returncode, result.stderr) == (ExitStatus.OK, "")
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    at = lines.index(["$share/crew/jobs/+", "2", "of", "2", "3", "-", "earliest_finish"])
    assert [line[0] for line in lines[at + 1 :]] == ["anna", "bert"]
    assert "publishers" not in result.stdout


def test_json_has_the_reports_of_the_node_as_they_came(busy_port: int) -> None:
    document = json.loads(top("-p", busy_port, "--json").stdout)
    assert document["node"] == "harbour"
    assert document["load"]["state"] in ("LOW", "HIGH", "OVERLOAD")
    (publisher,) = document["publishers"]["rows"]
    assert publisher["client"] == "meter-7"
    (queue,) = document["queues"]["rows"]
    assert (queue["client"], queue["connected"], queue["queued_messages"]) == ("keeper", False, 3)


def test_a_live_picture_follows_the_node(busy_port: int) -> None:
    with terminal("-p", busy_port, "--interval", 0.1) as window, RawClient(busy_port) as late:
        window.wait_for("meter-7")
        late.connect("meter-8")
        late.publish("plant/level", b"1", qos=1)
        window.wait_for("meter-8")
        window.press("q")
        assert window.wait_end() == ExitStatus.OK


def test_a_broker_without_such_reports_is_named_with_a_hint(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        result = top("-p", port)
    assert (result.returncode, result.stdout) == (ExitStatus.FAILURE, "")
    error, hint = result.stderr.splitlines()
    assert "mosquitto version" in error
    assert "$SYS/tide" in error
    assert "Tidegate" in hint


def test_a_node_without_sys_topics_is_the_same_case() -> None:
    with BrokerThread(features=Features(sys_interval=0)) as broker:
        result = top("-p", broker.port)
    assert result.returncode == ExitStatus.FAILURE
    assert "sys_interval" in result.stderr.splitlines()[1]


def test_nobody_listening_is_one_line_and_a_hint() -> None:
    result = top("-p", free_port())
    assert result.returncode == ExitStatus.FAILURE
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["error", "hint"]


def test_q_ends_the_live_picture_and_restores_the_terminal() -> None:
    with quiet_node() as broker:
        publish_reports(broker, "meter-7")
        with terminal("-p", broker.port, "--interval", 0.1) as window:
            window.wait_for("meter-7-reader")
            assert termios.tcgetattr(window.slave) != window.before
            publish_reports(broker, "meter-8")
            window.wait_for("meter-8-reader")
            window.press("q")
            assert window.wait_end() == ExitStatus.OK
            assert termios.tcgetattr(window.slave) == window.before
            assert "\x1b[?1049l" in window.output  # what was on the screen before is there again
            assert "\x1b[?25h" in window.output  # and so is the cursor


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_and_restore_the_terminal(number: signal.Signals) -> None:
    with quiet_node() as broker:
        publish_reports(broker, "meter-7")
        with terminal("-p", broker.port, "--interval", 0.1) as window:
            window.wait_for("meter-7-reader")
            window.process.send_signal(number)
            assert window.wait_end() == 128 + number
            assert termios.tcgetattr(window.slave) == window.before
            assert "\x1b[?1049l" in window.output


def test_s_changes_the_order() -> None:
    with quiet_node() as broker:
        publish_reports(broker, "meter-7")
        with terminal("-p", broker.port, "--interval", 60) as window:
            window.wait_for("order: trouble first")
            window.press("s")
            window.wait_for("order: rate")


def test_g_shows_groups_and_traffic_in_turn() -> None:
    with quiet_node() as broker:
        publish_reports(broker, "meter-7")
        with terminal("-p", broker.port, "--interval", 60) as window:
            window.wait_for("meter-7-reader")
            window.press("g")
            window.wait_for("$share/crew/jobs/+")
            window.press("g")
            window.wait_for("meter-7-reader")
            window.press("q")
            assert window.wait_end() == ExitStatus.OK


def test_it_waits_for_a_broker_that_went_away_and_goes_on_when_it_is_back() -> None:
    port = free_port()
    with ExitStack() as stack:
        with quiet_node(port=port) as broker:
            publish_reports(broker, "meter-7")
            window = stack.enter_context(terminal("-p", port, "--interval", 0.1))
            window.wait_for("meter-7-reader")
        window.wait_for("not connected, trying again")
        with quiet_node(port=port) as broker:
            publish_reports(broker, "meter-9")
            window.wait_for("meter-9-reader")
