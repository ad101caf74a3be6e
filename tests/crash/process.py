"""A broker process on a data folder that can be killed at any moment and started again on the same folder.

`stalled_disk` is a disk that does not answer: it holds the write lock of the store file, so that no commit of the
broker comes through until it ends. Whatever the broker says meanwhile, it says before the commit.
"""

import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tidegate.broker.store.store import FILE_NAME
from tidegate.testing.ports import free_port

READY_DEADLINE = 30.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tidegate", *map(str, arguments)]


def run_command(*arguments: object, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run `tidegate …` to its end."""
    return subprocess.run(
        command(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False
    )


def kill_command(after: float, *arguments: object) -> float | None:
    """Start `tidegate …` and kill it after so many seconds; if it ended before, how long it took."""
    started = time.monotonic()
    with subprocess.Popen(
        command(*arguments), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            process.wait(after)
            return time.monotonic() - started
        except subprocess.TimeoutExpired:
            process.kill()
            return None


class BrokerProcess:
    """`tidegate serve --data DIR --port N`; the log is appended to a file, which outlives the process."""

    def __init__(
        self,
        data: Path,
        *options: object,
        log: Path | None = None,
        before: Callable[[], None] | None = None,
        user: str | int | None = None,
    ) -> None:
        self.data = data
        self.log = log or data.with_name(data.name + ".log")
        self.port = free_port()
        self.start_seconds = 0.0
        self.start_cpu_seconds = 0.0
        self._options = options
        self._before = before
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._said = b""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Start the process without waiting until it serves."""
        arguments = command(
            "serve", "--data", self.data, "--port", self.port, "--log-format", "json", *self._options
        )
        self._said = b""
        self._started = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                arguments,
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=self._before,
                user=self._user,
            )

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def wait_ready(self, timeout: float = READY_DEADLINE) -> str:
        """The line that says it serves; sets `start_seconds`."""
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout
        deadline = time.monotonic() + timeout
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise TimeoutError(f"not ready within {timeout} s: {self.logged()}")
            data = os.read(stdout.fileno(), 65_536)
            if not data:
                raise AssertionError(
                    f"ended with {self._process.wait()} before it was ready: {self.logged()}"
                )
            self._said += data
        self.start_seconds = time.monotonic() - self._started
        # Far below `start_seconds`, it tells of a machine that had no time for the process, or of a slow disk.
        used = psutil.Process(self.pid).cpu_times()
        self.start_cpu_seconds = used.user + used.system
        return self._said.decode()

    def metrics_port(self) -> int:
        found = re.search(r"metrics on http://[^:]+:(\d+)/", self._said.decode())
        assert found is not None, self._said
        return int(found.group(1))

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; nothing if it has ended."""
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def stop(self) -> int:
        """SIGTERM; gives the exit status."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        status = process.wait(READY_DEADLINE)
        self.kill()
        return status

    def wait_exit(self) -> int:
        """The exit status of a process that ends by itself."""
        assert self._process is not None
        return self._process.wait(READY_DEADLINE)

    def restart(self) -> None:
        """Kill it and start it again on the same data."""
        self.kill()
        self.start()

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


@contextmanager
def stalled_disk(data: Path) -> Iterator[None]:
    """Inside, the broker on this folder cannot commit."""
    db = sqlite3.connect(data / FILE_NAME, isolation_level=None, timeout=10.0)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
    finally:
        db.close()


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 15.0) -> None:
    """Poll a condition that has no event to wait for."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.01)
