"""What a reader needs to judge or repeat a run: code, machine, versions, command and date."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import tidegate
from tidegate.lab.brokers import mosquitto_version

SOURCE = Path(tidegate.__file__).parent


def _git(*arguments: str) -> str:
    """Output of git for the tree this package lies in; empty outside of one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _package(name: str) -> str:
    try:
        return package_version(name)
    except PackageNotFoundError:
        return "absent"


def machine() -> dict[str, Any]:
    """What the numbers of real brokers depend on besides the code."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else "unknown", "cores": os.cpu_count(), "kernel": platform.release()}


def provenance() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        # Other people's work in progress elsewhere in the tree does not change the numbers.
        "is_modified": bool(_git("status", "--porcelain", "--", str(SOURCE))),
        "command": " ".join(["tidegate", *sys.argv[1:]]) if sys.argv[1:2] == ["lab"] else "",
        "machine": machine(),
        "versions": {
            "tidegate": tidegate.__version__,
            "python": platform.python_version(),
            "uvloop": _package("uvloop"),
            "matplotlib": _package("matplotlib"),
            "mosquitto": mosquitto_version(),
        },
    }
