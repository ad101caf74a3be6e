"""Disks that are small, full or read-only, for brokers in processes of their own."""

import ctypes
import os
import resource
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.process import BrokerProcess

SIZE = 16_000_000  # bytes of the small disk
LIMIT = 3_000_000  # bytes one file may have while the disk is "full"
PR_CAPBSET_DROP = 24
CAPABILITIES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: what lets root write where nobody may


def can_mount() -> bool:
    if os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A tmpfs of SIZE bytes on `folder`."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class Tmpfs:
    """Full because something else fills the disk; space returns when that is deleted."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self, broker: BrokerProcess) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4_096))
            except OSError:
                pass  # now it is full

    def free(self, broker: BrokerProcess) -> None:
        self._ballast.unlink()


class FileSize:
    """Full because no file of the broker may grow; the kernel says no as a full disk does."""

    def __init__(self, folder: Path) -> None:
        pass

    def fill(self, broker: BrokerProcess) -> None:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))

    def free(self, broker: BrokerProcess) -> None:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def limit_file_size() -> None:
    """In a child before exec: room for a few log lines, not for a store."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))


def obey_permissions() -> None:
    """In a child before exec: even root may write only where the mode allows it."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in CAPABILITIES:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def metric(broker: BrokerProcess, name: str) -> float:
    address = f"http://127.0.0.1:{broker.metrics_port()}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")
