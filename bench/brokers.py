"""The brokers that are measured: how each is started, with which settings, and how it is stopped."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import tidegate

START_SECONDS = 15.0

# Defaults, but for two limits. max_queued_messages 0 makes sure that Mosquitto never has to drop (with this
# load it did not with its default either). max_inflight_messages 0 is needed: with the default of 20 it closes a
# connection that has more unfinished QoS 2 messages, and QoS 1 cost it more (10 to 15 µs, not 7.5 to 11).
# TCP_NODELAY is left off, its default: with it, the saturating rows were dearer.
MOSQUITTO_SETTINGS = (
    "allow_anonymous true",
    "persistence false",
    "max_queued_messages 0",
    "max_inflight_messages 0",
)


def free_port() -> int:
    """Return a port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(kw_only=True)
class Broker:
    """A broker process on a free port: a context manager that waits until it answers, and stops it."""

    name: str
    cpu: int | None = None
    record: str = ""  # Tidegate: record to a lake at this level
    durable: bool = False  # Tidegate: `--data`, acknowledged after the commit; Mosquitto: `persistence true`
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self, folder: Path) -> list[str]:
        """Return the command line, after writing what it refers to into `folder`."""
        if self.name == "tidegate":
            data = ["--data", str(folder / "data")] if self.durable else []
            if self.record:
                data += ["--set", f"lake.path={folder / 'lake'}", "--set", f"lake.level={self.record}"]
            return [
                sys.executable,
                "-m",
                "tidegate",
                "serve",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--log-level",
                "warning",
                *data,
            ]
        config = folder / "mosquitto.conf"
        lines = [f"listener {self.port} 127.0.0.1", *MOSQUITTO_SETTINGS, "log_dest none"]
        if self.durable:
            lines.remove("persistence false")
            # Its snapshot is taken every 30 minutes by default; a crash loses what came since.
            lines += ["persistence true", f"persistence_location {folder}/"]
        config.write_text("\n".join(lines) + "\n")
        return [mosquitto_program(), "-c", str(config)]

    def __enter__(self) -> Self:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="tidebench-")
        folder = Path(self._folder.name)
        self._log = (folder / "log").open("w+b")
        own_cpus = os.sched_getaffinity(0)
        try:
            if self.cpu is not None:
                # Inherited by the child and by every thread that it starts.
                os.sched_setaffinity(0, {self.cpu})
            # A session of its own: Ctrl-C reaches this program, which then stops the broker itself.
            self.process = subprocess.Popen(
                self.command(folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        finally:
            os.sched_setaffinity(0, own_cpus)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self._log.seek(0)
                    text = self._log.read().decode(errors="replace").strip()
                    raise SystemExit(f"error: {self.name} does not accept connections\n{text}") from None
                time.sleep(0.02)

    def stop(self) -> None:
        """Ask the process to end, insist after five seconds."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
        self._folder.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def mosquitto_program() -> str:
    """Return where Mosquitto is; Debian puts it where a user's PATH does not look."""
    for folder in (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/local/sbin"):
        if folder and os.access(f"{folder}/mosquitto", os.X_OK):
            return f"{folder}/mosquitto"
    raise SystemExit("error: Mosquitto is not installed\nhint: apt install mosquitto")


def version(name: str) -> str:
    """Return the version of a broker."""
    if name == "tidegate":
        return tidegate.__version__
    text = subprocess.run([mosquitto_program(), "-h"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\S+)", text)
    return found.group(1) if found else "unknown"
