"""The console beside a node that `tidegate serve --console` runs: a process of its own, which ends with the node."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidegate.cli.status import ExitStatus

if TYPE_CHECKING:
    from tidegate.node import Node
    from tidegate.settings import ListenerSettings, Settings

NEEDED = ("starlette", "uvicorn")
REPORTS = "results"  # where `tidegate lab run` writes unless told otherwise
PATIENCE = 5.0  # seconds that a console may take to end


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


@dataclass(frozen=True, slots=True)
class Account:
    """How the console logs in at the node; without a name it comes as everybody does."""

    username: str | None = None
    password_file: Path | None = None

    def as_options(self) -> list[str]:
        found = {"--username": self.username, "--password-file": self.password_file}
        return [part for name, value in found.items() if value is not None for part in (name, str(value))]


def choose_listener(settings: "Settings", account: Account) -> int | None:
    """The number of the listener that the console connects to; None: it comes as the operator.

    It does so only if its page asks for the same accounts as the node. ConsoleError if no listener would let it in.
    """
    from tidegate.accounts.settings import CertificateIdentity
    from tidegate.console.errors import ConsoleError
    from tidegate.settings import NO_SOCKET

    accounts = settings.accounts
    has_accounts = (
        accounts.password_file is not None
        or accounts.jwt_keys is not None
        or accounts.certificate_identity is not CertificateIdentity.OFF
    )
    is_guarded = accounts.password_file is not None or not has_accounts
    if account.username is None and settings.operator_socket != NO_SOCKET and is_guarded:
        return None
    plain = {
        number: each
        for number, each in enumerate(settings.listeners)
        if not each.is_tls and not each.proxy_protocol
    }
    if not plain:
        raise ConsoleError(
            "the console has no way to the node: all listeners use TLS or stand behind a proxy",
            'add one for this machine (type = "unix" or "tcp"), or start `tidegate console --url` yourself',
        )
    if account.username is None or not has_accounts:
        is_open = not has_accounts or accounts.allow_anonymous
        plain = {number: each for number, each in plain.items() if is_open and each.accepts_anonymous}
    if not plain:
        raise ConsoleError(
            "the node would not let its console in without an account",
            "give --console-username and --console-password-file; docs/console.md says which rights it needs",
        )
    return min(plain, key=lambda number: _distance(plain[number]))


def _distance(listener: "ListenerSettings") -> int:
    """The less, the better: a socket of this machine first, WebSocket last."""
    from tidegate.settings import ListenerType, is_loopback

    if listener.type is ListenerType.UNIX:
        return 0
    return (2 if listener.is_websocket else 0) + (1 if is_loopback(listener.host) else 2)


def beside(
    port: int | None, listener: int | None, account: Account
) -> "Callable[[Node], AbstractAsyncContextManager[None]]":
    """What `serve` enters when the node is ready."""

    def start(node: "Node") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tidegate", "console"]
        command += ["--url", _address(node, listener), *account.as_options()]
        command += ["--parent", str(os.getpid()), "--log-level", "warning"]
        command += _same_as(node.settings)
        if port is not None:
            command += ["--http-port", str(port)]
        if Path(REPORTS).is_dir():
            command += ["--reports", REPORTS]
        # A session of its own: Ctrl-C is for the node, which then ends its console.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    @asynccontextmanager
    async def run(node: "Node") -> AsyncIterator[None]:
        process = start(node)
        try:
            yield
        finally:
            await _end(process)

    return run


def _address(node: "Node", listener: int | None) -> str:
    if listener is not None:
        return str(node.broker.endpoint_of(listener))
    if node.operator_socket is not None:
        return f"unix:{node.operator_socket}"
    return str(node.broker.endpoints[0])  # it could not be opened, which the node said


async def _end(process: subprocess.Popen[bytes]) -> None:
    """The node goes on serving meanwhile."""
    process.terminate()
    try:
        await asyncio.to_thread(process.wait, PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()  # it hangs: that is no reason for the node to
        await asyncio.to_thread(process.wait)
