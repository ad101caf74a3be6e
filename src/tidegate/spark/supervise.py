"""The reader's hold on its spool process: started when needed, started again if it was killed, ended with the query."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping

from tidegate.private import opener
from tidegate.spark.errors import SpoolError
from tidegate.spark.options import MqttOptions
from tidegate.spark.segments import Spool
from tidegate.spark.spool import IDENTITY, STATUS

LOOK = 0.02
STOP_SECONDS = 10.0


class SpoolSupervisor:
    """Lives in the process that plans batches, one a query. `given` are the options as Spark handed them over."""

    def __init__(self, options: MqttOptions, given: Mapping[str, str]) -> None:
        assert options.spool is not None
        self._options = options
        self._given = dict(given)
        self.spool = Spool(options.spool)
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Make sure that the process runs; raises `SpoolError` with what ended it for good.

        A spool that never was connected waits for its first connection, so that a wrong address or password shows up
        at once. One that was goes on with what it has, whether the broker is there now or not.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            _close_input(self._process)
            self._raise_if_failed()
            if self._process.returncode >= 0:
                # Not killed: it would only end again.
                raise SpoolError(
                    f"the spool process ended with status {self._process.returncode}: {self._said()}"
                )
        self.spool.create()
        was_subscribed = bool(self.spool.read_json(IDENTITY).get("filters"))
        try:
            (self.spool.folder / STATUS).unlink(missing_ok=True)
            self._start()
        except OSError as error:
            raise SpoolError(
                f"the spool {self.spool.folder} cannot be used: {error.strerror}",
                hint="choose a local folder that may be written to",
            ) from None
        if not was_subscribed:
            self.wait_connected(self._options.connect_timeout)

    def wait_connected(self, seconds: float) -> None:
        """Wait until the subscription stands; raises `SpoolError` if that takes too long or cannot be."""
        assert self._process is not None
        until = time.monotonic() + seconds
        while (status := self.spool.read_json(STATUS)).get("state") != "connected":
            if self._process.poll() is not None:
                self._raise_if_failed()
                raise SpoolError(
                    f"the spool process ended with status {self._process.returncode}: {self._said()}"
                )
            if time.monotonic() > until:
                self.stop()
                reason = status.get("error", "no answer")
                raise SpoolError(
                    f"{self._options.url} was not reached within {seconds:g} s: {reason}",
                    hint="check the address and that the broker runs",
                )
            time.sleep(LOOK)

    def stop(self) -> None:
        """End the process; it writes what it has and leaves its session to the next."""
        process, self._process = self._process, None
        if process is None:
            return
        _close_input(process)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        # The path of this process, which may have been sent here with the job; the password is not for `ps` to show.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with open(self.spool.folder / "spool.log", "wb", opener=opener) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.spark.spool"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for Spark, which then stops us
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already; whoever looks at it next says why
            self._process.stdin.write(json.dumps(self._given).encode() + b"\n")
            self._process.stdin.flush()

    def _raise_if_failed(self) -> None:
        assert self._process is not None
        status = self.spool.read_json(STATUS)
        if status.get("state") == "failed" and status.get("pid") == self._process.pid:
            raise SpoolError(status["error"], hint=status.get("hint", ""))
        if self._process.returncode == 2:
            raise SpoolError(self._said())

    def _said(self) -> str:
        path = self.spool.folder / "spool.log"
        try:
            return path.read_text(errors="replace").strip()[-1000:]
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it is gone, and did not read all
        process.stdin.close()
