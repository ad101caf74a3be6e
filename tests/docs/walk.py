"""Types what a page of the guide shows, line by line, and tells what did not come out as printed.

Everything runs in a network namespace of its own, so that ports are as printed and nobody else is there. All commands
share one transcript, as they would share a terminal: what one in the background prints may come after a later one.
Programs that go on until Ctrl-C are left running, as in another terminal, until their port is needed or the page ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.docs.pages import REPOSITORY, Step, steps
from tests.docs.scripts import BEFORE, PREPARED, STOP, typed, unrun_reason
from tests.docs.shown import missing

PATIENCE = 30.0  # seconds for a program to print what is shown
LIMIT = 180.0  # seconds for one that should end by itself
# Programs that go on until they are stopped.
GOES_ON = re.compile(
    r"tidegate (serve|console|demo|cluster up|space serve|space watch|rpc (-\S+ \S+ )*(gateway|router|worker|record)"
    r"|pipeline stream(?!.*--now)|sub(?!.* (-C|--count|-W) ))\b|tail -F"
)
NODE = re.compile(r"tidegate (serve|cluster up)\b(?!.*--role edge)")
READY = {
    "tidegate serve": "ready on",
    "tidegate console": "console on",
    "cluster up": "cluster ready",
    "space serve": "space ready",
    "router": "routing",
    "worker": "working",
    "record": "recording",
    "rpc .*gateway": "emulating",
}


class Namespace:
    """A network with a loopback address and nobody in it; this machine's own where the system allows no others."""

    def __init__(self) -> None:
        self.prefix: list[str] = []
        # Root needs no namespace of users, in which some programs cannot give up their rights.
        for unshare, enter in ((), ()), (("--map-root-user",), ("--user", "--preserve-credentials")):
            hold = ["unshare", "--net", *unshare, "sh", "-c", "ip link set lo up && echo up && exec sleep 2000"]
            self._holder = subprocess.Popen(hold, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert self._holder.stdout is not None
            if self._holder.stdout.readline() == b"up\n":
                self.prefix = ["nsenter", "--target", str(self._holder.pid), "--net", *enter]
                break
            self.close()

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()


class Walk:
    """One reader with one terminal in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.transcript = folder.parent / f"{folder.name}.transcript"
        self.transcript.write_bytes(b"")
        self.variables = folder.parent / f"{folder.name}.variables"
        self.groups: list[subprocess.Popen[bytes]] = []
        self.namespace = Namespace()
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.faults: list[str] = []
        for name in ("examples", "packaging", "constraints.txt"):
            (folder / name).symlink_to(REPOSITORY / name)
        (folder / ".venv").symlink_to(sys.prefix)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        return {**kept, "PATH": path, "COLUMNS": "160", "HOME": str(self.folder), "SPARK_LOCAL_IP": "127.0.0.1"}

    def text_since(self, offset: int) -> str:
        with self.transcript.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def type(self, step: Step) -> None:
        command = typed(step.command)
        offset = self.transcript.stat().st_size
        if NODE.search(command):
            self.stop(self.nodes)
        process = self.start(command)
        if GOES_ON.search(command) and "&" not in command:
            self.wait_ready(command, process, offset, step)
        else:
            self.finish(command, process, step)
            if command.rstrip().endswith("&"):
                self.wait_ready(command, None, offset, step)
        self.wait_for(lambda: missing(step.expected, self.text_since(offset)) is None)
        line = missing(step.expected, self.text_since(offset))
        if line is not None:
            self.fault(step, f"does not print {line!r}, but:\n{self.text_since(offset)}")

    def start(self, command: str) -> subprocess.Popen[bytes]:
        memory = f"[ -f {self.variables} ] && . {self.variables}; "
        keep = f"\nstatus=$?; export -p > {self.variables}; exit $status"
        with self.transcript.open("ab") as output:
            process = subprocess.Popen(
                [*self.namespace.prefix, "bash", "-c", memory + command + ("" if GOES_ON.search(command) else keep)],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.groups.append(process)
        if NODE.search(command):
            self.nodes.append(process)
        return process

    def finish(self, command: str, process: subprocess.Popen[bytes], step: Step) -> None:
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.fault(step, f"does not end within {LIMIT:g} s:\n{self.text_since(0)[-2000:]}")
            return
        should_fail = any(line.startswith("error: ") for line in step.expected)
        if (status != 0) != should_fail:
            self.fault(step, f"{command} ended with {status}:\n{self.text_since(0)[-3000:]}")

    def wait_ready(
        self, command: str, process: subprocess.Popen[bytes] | None, offset: int, step: Step
    ) -> None:
        words = [text for name, text in READY.items() if re.search(rf"{name}\b", command)][:1]
        is_ready = self.wait_for(
            lambda: all(word in self.text_since(offset) for word in words)
            or (process is not None and process.poll() is not None)
        )
        if not is_ready or (process is not None and process.poll() is not None):
            self.fault(step, f"does not go on:\n{self.text_since(offset)}")

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def fault(self, step: Step, text: str) -> None:
        self.faults.append(f"$ {step.command}\n{text}")

    def stop(self, started: list[subprocess.Popen[bytes]]) -> None:
        """Ask all that these commands have started to end; what does not is killed."""
        for kind, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
            left = [process.pid for process in started if _is_alive(process.pid)]
            for group in left:
                with contextlib.suppress(ProcessLookupError):  # it may just have ended
                    os.killpg(group, kind)
            end = time.monotonic() + patience
            while any(map(_is_alive, left)) and time.monotonic() < end:
                time.sleep(0.05)
        for process in started:
            process.wait(5)
        started.clear()


def _is_alive(group: int) -> bool:
    """Whether the group has a process that is not merely waiting to be buried."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rpartition(") ")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(pgrp) == group and state not in "ZX":
            return True
    return False


def walk(
    page: Path, folder: Path, is_wanted: Callable[[Step], bool] = lambda _: True
) -> tuple[list[str], list[str]]:
    """Do what the page says, or a part of it; returns the commands that were typed, and what was wrong."""
    name = page.relative_to(REPOSITORY).as_posix()
    reader = Walk(folder)
    done = []
    try:
        for file, text in PREPARED.get(name, {}).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        for command in BEFORE.get(name, ()):
            if command == STOP:
                reader.stop(reader.nodes)
            else:
                reader.type(Step("", command, []))
        for step in steps(page):
            if unrun_reason(name, step) is None and is_wanted(step):
                done.append(step.command)
                reader.type(step)
    finally:
        reader.stop(reader.groups)
        reader.namespace.close()
    return done, reader.faults
