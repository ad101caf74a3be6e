"""Brokers in processes of their own, on free ports of the loopback address: Tidegate with any settings, Mosquitto."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidegate.lab.errors import LabError
from tidegate.testing.ports import free_port

START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 5.0
MOSQUITTO: Final = "mosquitto"
# Defaults, but for two limits. max_queued_messages 0 makes sure that Mosquitto never has to drop (under the load of
# the benchmark it did not with its default either). max_inflight_messages 0 is needed: with the default of 20 it closes
# a connection that has more unfinished QoS 2 messages, and QoS 1 cost it more (10 to 15 µs, not 7.5 to 11).
# TCP_NODELAY is left off, its default: with it, the saturating rows of the benchmark were dearer.
MOSQUITTO_SETTINGS: Final = (
    "allow_anonymous true",
    "persistence false",
    "max_queued_messages 0",
    "max_inflight_messages 0",
)
# So that counters can be read.
SYS_EVERY_SECOND: Final = ("sys_interval 1",)
# Settings from the environment would make two runs of one command differ.
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the end of this: between the fork and its return nobody would know of the child."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        raise KeyboardInterrupt


@dataclass(kw_only=True)
class BrokerProcess:
    """A context manager: waits until the broker accepts connections, and stops it whatever happens.

    `settings` are `key=value` for `tidegate serve --set`; for Mosquitto, lines of its configuration file. `tables` is
    TOML for what has no key of its own, such as `[[shared]]` (Tidegate alone). `cpu` is the processor that it is pinned
    to.
    """

    name: str = "tidegate"
    settings: tuple[str, ...] = ()
    tables: str = ""
    cpu: int | None = None
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _mosquitto_settings(self, folder: Path) -> tuple[str, ...]:
        return (*MOSQUITTO_SETTINGS, *SYS_EVERY_SECOND, *self.settings)

    def _command(self, folder: Path) -> list[str]:
        """The command line, after writing what it refers to into `folder`."""
        if self.name == MOSQUITTO:
            config = folder / "mosquitto.conf"
            lines = (f"listener {self.port} 127.0.0.1", *self._mosquitto_settings(folder), "log_dest none")
            config.write_text("\n".join(lines) + "\n")
            return [mosquitto_program(), "-c", str(config)]
        command = [sys.executable, "-m", "tidegate", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--log-level", "warning"]
        if self.tables:
            file = folder / "tidegate.toml"
            file.write_text(self.tables, encoding="utf-8")
            command += ["--config", str(file)]
        for setting in self.settings:
            command += ["--set", setting]
        return command

    def __enter__(self) -> Self:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-lab-")
        folder = Path(self._folder.name)
        self._log = (folder / "log").open("w+b")
        own_cpus = os.sched_getaffinity(0)
        try:
            if self.cpu is not None:
                # Inherited by the child and by every thread that it starts.
                os.sched_setaffinity(0, {self.cpu})
            # A session of its own: Ctrl-C reaches this program, which then stops the broker itself.
            with uninterrupted():
                self._process = subprocess.Popen(
                    self._command(folder),
                    cwd=folder,
                    env=ENVIRONMENT,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                )
            os.sched_setaffinity(0, own_cpus)
            self._wait_until_it_answers()
        except BaseException:
            os.sched_setaffinity(0, own_cpus)
            self.stop()
            raise
        return self

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if not self.is_running or time.monotonic() > deadline:
                    said = self.logged().splitlines() or ["it said nothing"]
                    hint = next((line for line in said if line.startswith("hint:")), "").removeprefix(
                        "hint: "
                    )
                    raise LabError(
                        f"{self.name} does not accept connections: {_essence(said)}", hint
                    ) from None
                time.sleep(0.02)

    def logged(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Ask the process to end, insist after some seconds."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _essence(lines: list[str]) -> str:
    """The line that says what is wrong: a traceback ends with it, everything else begins with it."""
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def mosquitto_program() -> str:
    """Where Mosquitto is; Debian puts it where a user's PATH does not look. Raises `LabError`."""
    for folder in (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/local/sbin"):
        if folder and os.access(f"{folder}/mosquitto", os.X_OK):
            return f"{folder}/mosquitto"
    raise LabError("Mosquitto is not installed", "apt install mosquitto, or run with --only sim")


def mosquitto_version() -> str:
    try:
        command = [mosquitto_program(), "-h"]
    except LabError:
        return "absent"
    text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout
    found = re.search(r"version (\S+)", text)
    return found.group(1) if found else "unknown"
