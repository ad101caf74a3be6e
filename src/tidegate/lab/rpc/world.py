"""Everything a run over sockets needs, in processes of its own: broker, servers, routers, workers, gateways.

Parts are started by the commands a user would type. Each can be killed and started again.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.lab.errors import LabError
from tidegate.rpc import Options
from tidegate.testing.ports import free_port
from tidegate.testing.servers import RabbitServer, RedisServer

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
BACKENDS = ("mqtt", "rabbitmq+redis")
_READY_SECONDS = 60.0
# Routers send what callers ask for, twenty times as much from one second to the next; that is no flood.
SETTINGS = ("backoff.floor_rate=5000",)


class Part:
    """A `tidegate …` process that says one line when it is up."""

    def __init__(self, *arguments: object) -> None:
        self.command = [sys.executable, "-m", "tidegate", *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        self._process = subprocess.Popen(
            self.command,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + _READY_SECONDS
        said = b""
        while b"\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise LabError(f"{' '.join(self.command[2:])} is not ready: {self.logged()}")
            data = os.read(self._process.stdout.fileno(), 65_536)
            if not data:
                raise LabError(f"{' '.join(self.command[2:])} ended: {self.logged()}")
            said += data

    def logged(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """For good."""
        self.kill()
        self._log.close()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


class World:
    """A broker and, for the second backend, RabbitMQ and Redis; `part` adds processes of `tidegate rpc`.

    With `is_durable` the broker has a data folder, so that it may be killed. `settings` are for `serve --set`.
    """

    def __init__(
        self, backend: str, *, is_durable: bool = False, settings: tuple[str, ...] = (), window: int = 1000
    ) -> None:
        self.backend = backend
        self._window = window
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-lab-rpc-")))
        self.port = free_port()
        arguments: list[object] = [
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            self.port,
            "--log-level",
            "warning",
        ]
        for setting in (*SETTINGS, *settings):
            arguments += ["--set", setting]
        if is_durable:
            arguments += ["--data", self.folder / "broker"]
        self.broker = Part(*arguments)
        self.redis: RedisServer | None = None
        self.rabbit: RabbitServer | None = None
        self.parts: list[Part] = []

    def __enter__(self) -> Self:
        try:
            self.broker.start()
            if self.backend != "mqtt":
                self.redis = RedisServer(self.folder / "redis")
                self.rabbit = RabbitServer(self.folder / "rabbit")
                self.redis.start()
                self.rabbit.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for part in (*self.parts, self.broker):
            part.close()
        for server in (self.redis, self.rabbit):
            if server is not None:
                server.stop()
        self._stack.close()

    def options(self, gateway: str = "000000000000", namespace: str = "main") -> Options:
        options = Options(
            url=f"mqtt://127.0.0.1:{self.port}",
            backend=self.backend,
            default_gateway=gateway,
            namespace=namespace,
            window=self._window,
        )
        if self.redis is not None and self.rabbit is not None:
            options = replace(options, amqp=self.rabbit.url, redis=self.redis.url)
        return options

    def part(
        self,
        *arguments: object,
        gateway: str = "000000000000",
        namespace: str = "main",
        trace: Path | None = None,
    ) -> Part:
        """Make a part; it is not started yet."""
        options = self.options(gateway)
        common: list[object] = [
            "rpc",
            "--url",
            options.url,
            "--backend",
            self.backend,
            "--window",
            self._window,
        ]
        common += ["--namespace", namespace, "--default-gateway", gateway]
        if self.backend != "mqtt":
            common += ["--amqp", options.amqp, "--redis", options.redis]
        if trace is not None:
            common += ["--trace", trace]
        part = Part(*common, *arguments)
        self.parts.append(part)
        return part

    def start(self, *parts: Part) -> None:
        """All at once: an interpreter takes its time to start."""
        for part in parts:
            part.spawn()
        for part in parts:
            part.wait_ready()
