"""Network namespaces for brokers: each has a cable to one switch, of a bandwidth that the kernel keeps (`tc tbf`).

Needs root, `ip` and `tc`. What is made here is named after the process and gone at the end, also after an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidegate.lab.errors import LabError

HEADERS: Final = (
    66  # bytes of Ethernet, IP and TCP with timestamps before a payload; the paper counts messages alone
)
BURST: Final = "32kb"
QUEUE: Final = "2mb"
NETWORK: Final = "10.213.77."


def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for command in ("ip", "tc"):
        if shutil.which(command) is None:
            return f"the command {command} is missing (Debian: apt install iproute2)"
    name = f"tgprobe{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
    except LabError as error:
        return str(error)
    try:
        _run("ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        _run("ip", "-n", name, "link", "add", "br0", "type", "bridge")
        _shape(name, "veth0", 1.0)
    except LabError as error:
        return f"this kernel lacks something: {error}"
    finally:
        _run("ip", "netns", "del", name)
    return ""


class Network:
    """`with Network({"b0": 6.5, "clients": None}) as network:` Mbit/s each way, None for as fast as it goes."""

    def __init__(self, bandwidths: dict[str, float | None]) -> None:
        reason = why_not()
        if reason:
            raise LabError(f"no network namespaces: {reason}", "run as root on Linux, or without --only real")
        self._bandwidths = bandwidths
        self._prefix = f"tg{os.getpid()}-"
        self._stack = ExitStack()
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            switch = self._add("switch")
            _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "br0", "up")
            for number, (name, mbit) in enumerate(self._bandwidths.items(), 1):
                self._connect(switch, name, number, mbit)
        except BaseException:
            self._stack.close()
            raise
        return self

    def _add(self, name: str) -> str:
        space = self._prefix + name
        _run("ip", "netns", "add", space)
        self._stack.callback(_run, "ip", "netns", "del", space)
        return space

    def _connect(self, switch: str, name: str, number: int, mbit: float | None) -> None:
        space = self._add(name)
        port = f"p{number}"
        _run(
            "ip", "link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", switch
        )
        for where, device in ((space, "eth0"), (switch, port)):
            # A packet the kernel has not cut yet would have its headers counted once.
            _run("ip", "-n", where, "link", "set", device, "gso_max_segs", "1")
            _run("ip", "-n", where, "link", "set", device, "up")
            if mbit is not None:
                _shape(where, device, mbit)
        _run("ip", "-n", switch, "link", "set", port, "master", "br0")
        _run("ip", "-n", space, "link", "set", "lo", "up")
        self.addresses[name] = f"{NETWORK}{number}"
        _run("ip", "-n", space, "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0")

    def inside(self, name: str) -> list[str]:
        """What to put before a command that is to run there."""
        return ["ip", "netns", "exec", self._prefix + name]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _shape(space: str, device: str, mbit: float) -> None:
    _run(
        "ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", "handle", "1:",
        "stab", "overhead", f"-{HEADERS}", "linklayer", "ethernet",
        "tbf", "rate", f"{mbit * 1e6:.0f}bit", "burst", BURST, "limit", QUEUE,
    )  # fmt: skip


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise LabError(f"{Path(command[0]).name} {' '.join(command[1:4])}…: {said[0]}", "")
