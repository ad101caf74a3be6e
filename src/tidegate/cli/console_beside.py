"""The console beside a node that `tidegate serve --console` runs: a process of its own, which ends with the node."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidegate.cli.status import ExitStatus

if TYPE_CHECKING:
    from tidegate.node import Node
    from tidegate.settings import Settings

NEEDED = ("starlette", "uvicorn")
REPORTS = "results"  # where `tidegate lab run` writes unless told otherwise


def is_console_installed() -> bool:
    return all(importlib.util.find_spec(module) is not None for module in NEEDED)


def require_console() -> None:
    """Exit with a hint if what the console needs is not installed."""
    if not is_console_installed():
        typer.echo(f"error: the console needs {' and '.join(NEEDED)}, which are not installed", err=True)
        typer.echo("hint: pip install 'tidegate[console]'", err=True)
        raise typer.Exit(ExitStatus.STARTUP)


def _same_as(settings: "Settings") -> list[str]:
    """The node's accounts, rights and folders, as options of the console."""
    found = {
        "--accounts": settings.accounts.password_file,
        "--rights": settings.accounts.rights_file,
        "--policy": getattr(getattr(settings, "policy", None), "path", ""),
        "--lake": getattr(getattr(settings, "lake", None), "path", ""),
    }
    return [part for name, value in found.items() if value for part in (name, str(value))]


def beside(port: int | None) -> "Callable[[Node], AbstractContextManager[None]]":
    """What `serve` enters when the node is ready."""

    @contextmanager
    def run(node: "Node") -> Iterator[None]:
        command = [sys.executable, "-m", "tidegate", "console", "--url", str(node.broker.endpoints[0])]
        command += ["--parent", str(os.getpid()), "--log-level", "warning"]
        command += _same_as(node.settings)
        if port is not None:
            command += ["--http-port", str(port)]
        if Path(REPORTS).is_dir():
            command += ["--reports", REPORTS]
        # A session of its own: Ctrl-C is for the node, which then ends its console.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()  # it hangs: that is no reason for the node to
                process.wait()

    return run
