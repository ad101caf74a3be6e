"""A whole cluster on one machine: one process a node, so that every core is used."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tidegate.errors import TidegateError

START_SECONDS = 20.0
STOP_SECONDS = 10.0
SERVE = (sys.executable, "-m", "tidegate", "serve")


class ClusterError(TidegateError):
    """A node of a local cluster did not do what it should."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@dataclass
class NodeProcess:
    """One `tidegate serve`. `addresses` are where it said it listens: clients first, then nodes."""

    name: str
    arguments: list[str]
    secret: str
    log_path: Path
    prefix: tuple[str, ...] = ()  # a command to run it by
    addresses: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None

    def start(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")}
        environment["TIDEGATE_CLUSTER__SECRET"] = self.secret  # not on a command line that others can read
        self._log = self.log_path.open("ab")
        start = self._log.tell()
        self._process = subprocess.Popen(
            [*self.prefix, *SERVE, "--set", f"name={self.name}", *self.arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C reaches the one who watches, who then stops the nodes in order
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            with self.log_path.open("rb") as log:
                log.seek(start)
                text = log.read().decode(errors="replace")
            found = re.search(r"tidegate ready on ([^(]*)\(", text)
            if found:
                self.addresses = [each.strip() for each in found.group(1).split(",")]
                return
            if not self.is_running or time.monotonic() > deadline:
                self.stop()
                said = text.strip().splitlines() or ["it said nothing"]
                raise ClusterError(f"{self.name} did not start: {said[0]}", f"see {self.log_path}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._close()

    def stop(self) -> None:
        if self._process is not None and self.is_running:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


class LocalCluster:
    """Heads and edges: `with LocalCluster(edges=3) as cluster: …`. Ports from `port` on, 0 for free ones.

    Edges are with the first head; others are joined to it and take over.

    With `data`, each node keeps its sessions in a folder of its own there.
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
    ) -> None:
        self._count = edges
        self._heads = heads
        self._port = port
        self._data = data
        self._settings = list(settings)
        self._host = host
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
        node = NodeProcess(name, arguments, self._secret, self._logs / f"{name}.log")
        self.nodes.append(node)
        node.start()

    def fallen(self) -> Iterator[NodeProcess]:
        """Nodes that ended by themselves."""
        return (node for node in self.nodes if not node.is_running)

    def __exit__(self, *exc: object) -> None:
        for node in reversed(self.nodes):  # edges first: they tell their clients, and the head last
            node.stop()
        self._stack.close()
