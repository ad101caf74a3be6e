"""The broker under a soak: its own process on a fixed port, so that it can be killed and come back where it was."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.brokers import free_port

READY_SECONDS = 30.0
STOP_SECONDS = 15.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


class BrokerProcess:
    """`tidegate serve --port N`, with a metrics page; each of `settings` is a `--set` option."""

    def __init__(
        self,
        *settings: str,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
        data: Path | None = None,
    ) -> None:
        self.port = free_port()
        self._metrics_port = free_port()
        self._command = [
            *prefix, sys.executable, "-m", "tidegate", "serve", "--host", host, "--port", str(self.port),
            "--metrics-port", str(self._metrics_port), "--log-level", "warning", "--log-format", "json",
        ]  # fmt: skip
        if data is not None:
            self._command += ["--data", str(data)]
        for each in settings:
            self._command += ["--set", each]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._log.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        self._process = subprocess.Popen(
            self._command,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self._process.stdout is not None
        said = b""
        deadline = time.monotonic() + READY_SECONDS
        while b"\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.kill()
                raise TimeoutError(f"the broker was not ready within {READY_SECONDS:g} s")
            data = os.read(self._process.stdout.fileno(), 65_536)
            if not data:
                raise RuntimeError(f"the broker ended with status {self._process.wait()}: {self.logged()}")
            said += data

    def kill(self) -> None:
        """SIGKILL; nothing if it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def logged(self) -> str:
        """All it wrote to its log, over restarts."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def metrics(self) -> dict[str, float]:
        """The broker's own counters and gauges, without the prefix of their names."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            text = page.read().decode()
        return {
            name.removeprefix("tidegate_"): float(value)
            for name, value in re.findall(r"^(tidegate_[^ {]+(?:{.*})?) (\S+)$", text, re.MULTILINE)
        }

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The most it ever held, as the kernel counted it: no sample can miss a peak."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
        assert found is not None
        return int(found.group(1)) * 1024
