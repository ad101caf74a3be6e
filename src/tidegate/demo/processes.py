"""Programs that the demo starts: each says when it is ready, takes orders on its input, and is gone at the end."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.errors import TidegateError

START: Final = 20.0  # seconds until a program must say that it is ready
STOP: Final = 5.0
KEPT: Final = 200  # lines of a program's output
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
_prctl = ctypes.CDLL(None).prctl  # found here: between fork and exec nothing may be loaded


class DemoError(TidegateError):
    """A program of the demo did not do its part."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def _end_with_parent() -> None:
    """In the new process: a story that is killed must not leave its programs behind."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Program:
    """One process; its output is read by a thread, so that it never waits for us."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._changed = threading.Condition()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=environment | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the story, which then stops its programs in order
            preexec_fn=_end_with_parent,
        )
        self._reader = threading.Thread(target=self._read, name=f"demo-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_line(self, is_wanted: Callable[[str], bool], seconds: float = START) -> str:
        """The first line that is wanted; raises DemoError if the program ends or says nothing of the kind."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self.lines:
                    if is_wanted(line):
                        return line
                left = deadline - time.monotonic()
                if left <= 0 or (not self.is_running and not self._reader.is_alive()):
                    said = self._last("error: ") or self._last("") or "it said nothing"
                    raise DemoError(f"{self.name} did not do its part: {said}", self._last("hint: "))
                self._changed.wait(min(left, 0.2))

    def _last(self, start: str) -> str:
        """The rest of the last line that begins so."""
        return next((line.removeprefix(start) for line in reversed(self.lines) if line.startswith(start)), "")

    def order(self, text: str) -> None:
        """One line to its input; a program that has ended takes none."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def objects(self) -> list[dict[str, Any]]:
        """Its lines that are JSON, as far as they are kept."""
        with self._changed:
            return [json.loads(line) for line in self.lines if line.startswith("{")]

    def latest(self) -> dict[str, Any]:
        """The last of its lines that is JSON."""
        return (self.objects() or [{}])[-1]

    def stop(self) -> None:
        if self.is_running:
            self._process.terminate()
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
