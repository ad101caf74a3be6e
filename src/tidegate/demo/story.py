"""What the demo does, step by step, with words for the one who watches.

Steps that need a part of Tidegate which is not installed are left out, and said to be.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.demo.burst import cluster_burst
from tidegate.demo.processes import DemoError, Program

FLOODERS: Final = 2
SHORTEST: Final = 0.3
Say = Callable[[str], None]


@dataclass(slots=True)
class Stage:
    """Everything that runs. `scale` shortens all times, for tests."""

    say: Say
    sensors: int = 200
    port: int = 1883
    http_port: int | None = None
    has_console: bool = True
    scale: float = 1.0
    url: str = ""
    console: str = ""
    plant: Program | None = None
    flood: Program | None = None
    _running: list[Program] = field(default_factory=list)
    _programs: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, name: str, *arguments: str, ready: str = "ready") -> Program:
        """A program of ours, until the end of the story."""
        program = Program(name, arguments)
        self._programs.callback(program.stop)
        program.wait_line(lambda line: ready in line)
        self._running.append(program)
        return program

    def start_console(self, url: str) -> str:
        """Where its page is."""
        arguments = ["tidegate", "console", "--url", url, "--log-level", "error"]
        if self.http_port is not None:
            arguments += ["--http-port", str(self.http_port if not self.console else 0)]
        program = self.start("the console", *arguments, ready="tidegate console on")
        return re.sub(r".*console on ", "", program.wait_line(lambda line: "console on" in line))

    def close(self) -> None:
        self._programs.close()

    def enter(self, work: Any) -> Any:
        """Something else that lives until the end of the story."""
        return self._programs.enter_context(work)

    def wait(self, seconds: float) -> None:
        """Let the audience look; raises DemoError if a program has ended."""
        end = time.monotonic() + max(SHORTEST, seconds * self.scale)
        while time.monotonic() < end:
            for program in self._running:
                if not program.is_running:
                    raise DemoError(f"{program.name} ended: {program.lines[-1] if program.lines else ''}")
            time.sleep(0.2)

    def look(self, page: str) -> str:
        return f"{self.console}#/{page}" if self.console else "tidegate top"

    @property
    def host_and_port(self) -> tuple[str, str]:
        host, _, port = self.url.removeprefix("mqtt://").rpartition(":")
        return host, port


def begin(stage: Stage) -> None:
    """The node, the console, and everybody who talks to it."""
    arguments = ["tidegate", "serve", "--log-level", "error"]
    if stage.port != 1883:
        arguments += ["--port", str(stage.port)]
    node = stage.start("the node", *arguments, "--set", "name=demo", ready="tidegate ready on")
    found = re.search(r"ready on (mqtt://[^ ,]+)", "\n".join(node.lines))
    if found is None:
        raise DemoError(f"the node said {node.lines[-1]}")
    stage.url = found[1]
    stage.say(f"node     {stage.url}")
    if stage.has_console:
        stage.console = stage.start_console(stage.url)
        stage.say(f"console  {stage.console}")
    host, port = stage.host_and_port
    stage.plant = stage.start("the plant", "tidegate.demo.plant", stage.url, str(stage.sensors))
    stage.flood = stage.start("the flood", "tidegate.demo.flood", host, port, str(FLOODERS))
    stage.say(f"clients  {stage.sensors} sensors, a crew of 3 that shares jobs, {FLOODERS} cameras")


def calm(stage: Stage) -> None:
    stage.say("\nA calm plant. Every sensor sends once a second; the node learns what is normal for each.")
    stage.say(
        f"  look at {stage.look('overview')}: throughput, latency, loop lag; the verdicts turn from training to normal"
    )
    stage.wait(20)
    _tell_delays(stage)


def slow_member(stage: Stage) -> None:
    assert stage.plant is not None
    stage.say("\nA slow worker. worker-3 takes ten times as long for each job, and says nothing about it.")
    stage.say(
        f"  look at {stage.look('groups')}: its share falls, the others take over, and nothing waits for it"
    )
    before = stage.plant.latest()
    stage.plant.order("slow")
    stage.wait(20)
    _tell_shares(stage, before)
    stage.plant.order("brisk")
    stage.say("  worker-3 is brisk again, and gets its share back")
    stage.wait(5)


def flooding(stage: Stage) -> None:
    assert stage.flood is not None
    stage.say("\nA flood. Two cameras that sent ten messages a second now send as fast as they can.")
    stage.say(f"  look at {stage.look('publishers')}: both are held; the sensors are served as before")
    stage.flood.order("go")
    stage.wait(20)
    _tell_delays(stage)
    stage.flood.order("stop")
    stage.say("  the flood is over; the node lets the cameras go again when it has been calm for a while")
    stage.wait(8)


def rpc_gateway(stage: Stage) -> None:
    """Labels behind a gateway, called through routers."""
    stage.say(
        "\nCalls to devices. A gateway with shelf labels behind it, a router, and a worker that sets prices."
    )
    common = ("tidegate", "rpc", "--url", stage.url, "--telemetry", "--default-gateway", "gw0")
    stage.start(
        "the gateway",
        *common,
        "gateway",
        "--count",
        "1",
        "--latency",
        "0.02",
        "--jitter",
        "0.5",
        ready="emulating",
    )
    stage.start("the router", *common, "router", ready="routing")
    stage.start("the caller", "tidegate.demo.shop", stage.url)
    stage.say(f"  look at {stage.look('rpc')}: where the time goes, hop by hop, and how calls end")
    stage.wait(20)


@dataclass(frozen=True, slots=True)
class Step:
    """`room`: the part of Tidegate that it shows; without it, it is left out."""

    tell: Callable[[Stage], None]
    room: str = ""
    words: str = ""  # what is left out without it
    is_once: bool = False

    @property
    def is_possible(self) -> bool:
        if not self.room:
            return True
        try:
            return importlib.util.find_spec(f"tidegate.{self.room}") is not None
        except ModuleNotFoundError:
            return False


STEPS: Final[Sequence[Step]] = (
    Step(calm),
    Step(slow_member),
    Step(flooding),
    Step(rpc_gateway, room="rpc.recording", words="The part on calls to devices", is_once=True),
    Step(cluster_burst, room="cluster.local", words="The part on a cluster", is_once=True),
)


def tell(stage: Stage, *, is_endless: bool = True) -> None:
    """All steps, then from the first one on again, until interrupted. What was started is stopped in any case."""
    try:
        begin(stage)
        is_first = True
        while True:
            for step in STEPS:
                if step.is_possible and (is_first or not step.is_once):
                    step.tell(stage)
                elif is_first:
                    stage.say(f"\n{step.words} is left out: tidegate.{step.room} is not installed.")
            is_first = False
            if not is_endless:
                return
            stage.say("\nThat was all; it begins again. Ctrl-C ends it.")
    finally:
        with contextlib.suppress(OSError):  # the terminal may be gone
            stage.say("\nstopping")
        stage.close()


def _tell_delays(stage: Stage) -> None:
    assert stage.plant is not None
    found = stage.plant.latest()
    if "p99_ms" in found:
        stage.say(f"  sensors' messages arrive within {found['p50_ms']} ms, 99 % within {found['p99_ms']} ms")


def _tell_shares(stage: Stage, before: dict[str, Any]) -> None:
    """Who did how much since then."""
    assert stage.plant is not None
    done = {
        name: count - before.get("done", {}).get(name, 0)
        for name, count in stage.plant.latest().get("done", {}).items()
    }
    if any(done.values()):
        shares = ", ".join(f"{name} {count / sum(done.values()):.0%}" for name, count in done.items())
        stage.say(f"  jobs done meanwhile: {shares}")
