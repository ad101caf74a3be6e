"""A whole cluster on one machine: one process a node, so that every core is used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tidegate.errors import TidegateError

START_SECONDS = 20.0
STOP_SECONDS = 10.0
SERVE = (sys.executable, "-m", "tidegate", "serve")
PR_SET_PDEATHSIG = 1


class ClusterError(TidegateError):
    """A node of a local cluster did not start; `status` is what it ended with."""

    def __init__(self, text: str, hint: str = "", status: int = 1) -> None:
        super().__init__(text)
        self.hint = hint
        self.status = status


@dataclass
class NodeProcess:
    """One `tidegate serve`. `addresses` are where it said it listens: clients first, then nodes."""

    name: str
    arguments: list[str]
    secret: str
    log_path: Path
    prefix: tuple[str, ...] = ()  # a command to run it by
    is_bound: bool = False  # it ends when the thread that started it does, on Linux
    addresses: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _log_start: int = 0

    def start(self) -> None:
        """Until it serves; raises ClusterError."""
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if not self.is_running:
                text = f"{self.name} did not start: {self.last_words('error') or self.ending}"
                raise ClusterError(text, self.last_words("hint"), max(self._returned, 1))
            if time.monotonic() > deadline:
                self.stop()
                raise ClusterError(f"{self.name} did not start within {START_SECONDS:g} s")
            time.sleep(0.02)

    def launch(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")}
        environment["TIDEGATE_CLUSTER__SECRET"] = self.secret  # not on a command line that others can read
        self.log_path.parent.mkdir(parents=True, exist_ok=True)  # old temporary folders are cleared away
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self.prefix, *SERVE, "--set", f"name={self.name}", *self.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the one who watches, who then stops the nodes in order
                preexec_fn=_end_with_parent() if self.is_bound else None,
            )

    def is_ready(self) -> bool:
        found = re.search(r"tidegate ready on ([^(]*)\(", self._said())
        if found:
            self.addresses = [each.strip() for each in found.group(1).split(",")]
        return found is not None

    def _said(self) -> str:
        """What it wrote since it was launched."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last_words(self, kind: str) -> str:
        """The line that begins with `error:` or `hint:`; without an error, its last line is one."""
        lines = self._said().strip().splitlines()
        found = [line.partition(": ")[2] for line in lines if line.startswith(f"{kind}: ")]
        return (found or (lines if kind == "error" else []) or [""])[-1]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _returned(self) -> int:
        assert self._process is not None
        return self._process.wait()

    @property
    def is_refused(self) -> bool:
        """It ended because of a setting: it would again."""
        return self._returned == os.EX_CONFIG

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self._returned < 0:
            return f"was killed by signal {-self._returned}"
        words = self.last_words("error")
        return f"ended with status {self._returned}" + (f" ({words})" if words else "")

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self.is_running:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _end_with_parent() -> Callable[[], None] | None:
    """What a new process does so that it is told to end when its parent is gone, even by a kill."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # it went in between

    return bind


class LocalCluster:
    """Heads and edges: `with LocalCluster(edges=3) as cluster: …`. Ports from `port` on, 0 for free ones.

    Edges are with the first head; others are joined to it and take over.

    With `data`, each node keeps its sessions in a folder of its own there. With `is_bound`, nodes end with the
    thread that started them, however it ends.
    """

    def __init__(
        self,
        *,
        edges: int,
        heads: int = 1,
        port: int = 0,
        data: Path | None = None,
        settings: Sequence[str] = (),
        host: str = "127.0.0.1",
        is_bound: bool = False,
    ) -> None:
        self._count = edges
        self._heads = heads
        self._port = port
        self._data = data
        self._settings = list(settings)
        self._host = host
        self._is_bound = is_bound
        self._secret = secrets.token_urlsafe(32)
        self._stack = contextlib.ExitStack()
        self.nodes: list[NodeProcess] = []

    @property
    def head(self) -> NodeProcess:
        return self.nodes[0]

    @property
    def edges(self) -> list[NodeProcess]:
        return self.nodes[self._heads :]

    @property
    def link(self) -> str:
        """The first head's address for other nodes."""
        return self.links[0]

    @property
    def links(self) -> list[str]:
        return [head.addresses[-1].removeprefix("mqtt://") for head in self.nodes[: self._heads]]

    def __enter__(self) -> Self:
        try:
            self._logs = Path(
                self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-cluster-"))
            )
            for number in range(self._heads):
                port = self._port + self._heads + self._count + number if self._port else 0
                arguments = ["--role", "head", "--set", f"cluster.link_port={port}"]
                for link in self.links:  # of the heads that are up
                    arguments += ["--head", link]
                self._start(f"head{number + 1}" if number else "head", arguments, number)
            for number in range(self._count):
                arguments = ["--role", "edge"]
                for link in self.links:
                    arguments += ["--head", link]
                self._start(f"edge{number}", arguments, self._heads + number)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, name: str, arguments: list[str], offset: int) -> None:
        port = self._port + offset if self._port else 0
        arguments = [*arguments, "--host", self._host, "--port", str(port), "--log-level", "warning"]
        if self._data is not None:
            arguments += ["--data", str(self._data / name)]
        for setting in self._settings:
            arguments += ["--set", setting]
        log_path = self._logs / f"{name}.log"
        node = NodeProcess(name, arguments, self._secret, log_path, is_bound=self._is_bound)
        self.nodes.append(node)
        node.start()
        self._keep_ports(node)

    def _keep_ports(self, node: NodeProcess) -> None:
        """It has the same ones when it is started again."""
        ports = [address.rpartition(":")[2] for address in node.addresses]
        node.arguments[node.arguments.index("--port") + 1] = ports[0]
        if node in self.nodes[: self._heads]:
            node.arguments += ["--set", f"cluster.link_port={ports[-1]}"]

    def __exit__(self, *exc: object) -> None:
        for node in reversed(self.nodes):  # edges first: they tell their clients, and the head last
            node.stop()
        self._stack.close()
