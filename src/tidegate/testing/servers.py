"""Redis and RabbitMQ in processes of their own, on free ports of the loopback address, with their data in a folder.

They can be killed and started again on the same data, as in a crash. RabbitMQ also gets an epmd of its own, which ends
with it; Erlang would leave one behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.errors import TidegateError
from tidegate.testing.ports import free_port

_START_SECONDS = 60.0


class ServerError(TidegateError):
    """A server of another project is missing or does not start."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Server:
    """A context manager: waits until the server answers, and stops it whatever happens."""

    name = ""

    def __init__(self, folder: Path | None = None) -> None:
        self._own_folder = None if folder else tempfile.TemporaryDirectory(prefix=f"tidegate-{self.name}-")
        self.folder = folder or Path(self._own_folder.name if self._own_folder else ".")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._own_folder is not None:
            self._own_folder.cleanup()

    def start(self) -> None:
        """Start, or start again on the same data and port."""
        self._launch()
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                said = self.logged().splitlines()[-5:]
                self.kill()
                raise ServerError(f"{self.name} did not start: {' '.join(said)}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, with all of its children."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def cpu_seconds(self) -> float:
        """User and system time so far, of all its processes."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[2]) == self.pid:  # of its process group
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def logged(self) -> str:
        log = self.folder / "log.txt"
        return log.read_text(errors="replace") if log.exists() else ""

    def _launch(self) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _spawn(
        self, command: list[str], environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _end_group(process, number)

    def _ask(self, question: bytes, check: Callable[[bytes], bool]) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as link:
                link.settimeout(1.0)
                link.sendall(question)
                return check(link.recv(100))
        except OSError:
            return False


class RedisServer(Server):
    """Redis with an append-only file, so that a kill loses a second at most."""

    name = "redis"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _launch(self) -> None:
        program = find_program("redis-server")
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "save": "",
            "appendonly": "yes",
        }
        command = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self._process = self._spawn([program, *command, "--appendfsync", "everysec"])

    def _answers(self) -> bool:
        return self._ask(b"PING\r\n", lambda answer: answer.startswith(b"+PONG"))


class RabbitServer(Server):
    """RabbitMQ, one node, without plug-ins."""

    name = "rabbitmq"

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._epmd_port = free_port()
        self._dist_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def _launch(self) -> None:
        # The script in PATH changes the user and keeps no environment; the one behind it takes ours.
        program = find_program("rabbitmq-server", "/usr/lib/rabbitmq/bin")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rabbitmq.conf").write_text("")
        (self.folder / "plugins").write_text("[].\n")
        environment = {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"tidegate-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
        }
        if self._epmd is None:
            self._epmd = self._spawn([find_program("epmd"), "-port", str(self._epmd_port)], environment)
        self._process = self._spawn([program], environment)

    def _answers(self) -> bool:
        return self._ask(b"AMQP\x00\x00\x09\x01", lambda answer: answer[:1] == b"\x01")

    def stop(self) -> None:
        super().stop()
        if self._epmd is not None:
            _end_group(self._epmd, signal.SIGKILL)
            self._epmd = None


def _end_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a process and its children, and wait until it is gone."""
    for each in (number, signal.SIGKILL):
        try:
            os.killpg(process.pid, each)
        except ProcessLookupError:
            pass
        try:
            process.wait(15.0)
            break
        except subprocess.TimeoutExpired:
            continue


def find_program(name: str, *folders: str) -> str:
    """Where it is; Debian puts servers where a user's PATH does not look. Raises `ServerError`."""
    for folder in (*folders, *os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/local/sbin"):
        found = shutil.which(name, path=folder)
        if found:
            return found
    raise ServerError(f"{name} is not installed", hint=f"apt install {name}")
