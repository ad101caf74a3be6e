"""A browser, real nodes, and consoles as processes of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tidegate.accounts.password_edit import set_password
from tidegate.broker.flow_settings import Backoff, FlowSettings
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

DEADLINE = 30.0
expect.set_options(timeout=DEADLINE * 1e3)
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
# Who is over its habit is held, whatever the load, and longer than any test takes.
HOLDING = FlowSettings(backoff=Backoff(always=True, floor_rate=0, d_max=3_600.0))


class Console:
    """`tidegate console` in a process of its own, on a free port; it knows its node by port or operator's socket."""

    def __init__(self, node: int | Path, *arguments: object) -> None:
        way = ["--url", f"unix:{node}"] if isinstance(node, Path) else ["--port", str(node)]
        command = [sys.executable, "-m", "tidegate", "console", *way, "--http-port", "0"]
        self.process = subprocess.Popen(
            [*command, "--log-level", "error", *map(str, arguments)],
            env=CLEAN,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"https?://[^ ]+:(\d+)/", line)
        assert found, f"the console said {line!r} {self.process.stdout.read()}"
        self.url = found[0].rstrip("/")
        self.port = int(found[1])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()


class StartConsole(Protocol):
    """Arguments are options of `tidegate console`."""

    def __call__(self, broker: BrokerThread, *arguments: object) -> Console: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: while it is there, a loop counts as running here, and other tests need their own."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("there is no Chromium: scripts/ensure-system installs it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class OpenPage(Protocol):
    """A page of a console, in a browser that knows nothing yet; errors of its scripts fail the test at its end."""

    def __call__(self, console: Console, page: str = "overview", **options: Any) -> Page: ...


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    problems: list[str] = []
    with ExitStack() as stack:

        def open_one(console: Console, page: str = "overview", **options: Any) -> Page:
            context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
            stack.callback(context.close)
            opened = context.new_page()
            opened.set_default_timeout(DEADLINE * 1e3)
            opened.on("pageerror", lambda error: problems.append(str(error)))
            opened.on(
                "console",
                lambda message: (
                    problems.append(message.text)
                    if message.type == "error"
                    and "Failed to load resource" not in message.text
                    and "ERR_" not in message.text
                    else None
                ),
            )
            opened.goto(f"{console.url}/#/{page}")
            return opened

        yield open_one
    assert problems == []


@pytest.fixture(scope="module")
def busy_node() -> Iterator[BrokerThread]:
    """A node with a held publisher, some others, a queue for somebody who is away, and a shared group."""
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(name="harbour", flow=HOLDING))
        fill_node(broker, stack)
        yield broker


def fill_node(broker: BrokerThread, stack: ExitStack) -> None:
    from tidegate.flow.backoff import Prior
    from tidegate.mqtt.properties import Property

    def tell() -> None:
        gate = broker.broker.core.gate
        assert gate is not None
        gate.priors = {"camera": Prior(rate=0.5, dispersion=0.05)}

    def dial(name: str, **options: Any) -> RawClient:
        client = stack.enter_context(RawClient(broker.port))
        client.connect(name, **options)
        return client

    broker.call(tell)
    away = dial("archive", properties={Property.SESSION_EXPIRY_INTERVAL: 3_600})
    away.subscribe("plant/#", qos=1)
    away.disconnect()
    for name in ("anna", "bert"):
        dial(name).subscribe("$share/crew/jobs/+", qos=1)
    for number in range(5):
        dial(f"meter-{number}").publish("plant/level", b"1", qos=1)
    dial("foreman").publish("jobs/1", b"now", qos=1)
    camera = dial("camera", keep_alive=0)  # no hold is longer than half of it
    flood(broker, camera, "camera")


def flood(broker: BrokerThread, client: RawClient, name: str) -> None:
    """More than its habit allows, until it is held."""
    from tests.integration.broker.gate_traffic import publish

    client.send_bytes(publish(0))
    client.barrier()
    client.send_bytes(b"".join(publish(number) for number in range(1, 400)))
    until(lambda: is_held(broker, name))


def is_held(broker: BrokerThread, name: str) -> bool:
    def look() -> bool:
        core = broker.broker.core
        assert core.gate is not None
        return core.sessions[name].conn in (core.gate.waiters or ())

    return broker.call(look)


def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def busy_console(busy_node: BrokerThread) -> Iterator[Console]:
    console = Console(busy_node.operator_socket(), "--reports", "results")
    yield console
    console.stop()


@pytest.fixture
def start_console() -> Iterator[StartConsole]:
    with ExitStack() as stack:

        def start(broker: BrokerThread, *arguments: object) -> Console:
            console = Console(broker.operator_socket(), *arguments)
            stack.callback(console.stop)
            return console

        yield start


@pytest.fixture(scope="session")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ada (secret-a) and bob (secret-b)."""
    path = tmp_path_factory.mktemp("accounts") / "accounts.txt"
    for user, password in (("ada", "secret-a"), ("bob", "secret-b")):
        set_password(path, user, password.encode())
    return path


def say(broker: BrokerThread, topic: str, document: object, *, retain: bool = True) -> None:
    """As the node itself would."""
    payload = json.dumps(document).encode()
    broker.call(lambda: broker.broker.publish(topic, payload, retain=retain))
