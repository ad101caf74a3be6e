"""What all commands of `tidegate rpc` share: how to reach the backbone, and how a long-running part is run."""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidegate import log
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.rpc import DeviceType, Options
    from tidegate.rpc.telemetry import Observer

_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The options in front of the command."""

    url: str
    backend: str
    amqp: str
    redis: str
    namespace: str
    types: Path | None
    secret_file: Path | None
    default_gateway: str
    window: int
    username: str | None
    password_file: Path | None
    trace: Path | None
    trace_sample: float
    telemetry: bool

    def options(self) -> "Options":
        from tidegate.client import ClientOptions
        from tidegate.rpc import Options

        return Options(
            url=self.url,
            backend=self.backend,
            amqp=self.amqp,
            redis=self.redis,
            namespace=self.namespace,
            secret=self._secret(),
            default_gateway=self.default_gateway,
            window=self.window,
            mqtt=ClientOptions(username=self.username, password=self._password()),
        )

    def device_types(self) -> "tuple[DeviceType, ...]":
        from tidegate.rpc import SHELF_LABEL, load_types

        return (SHELF_LABEL,) if self.types is None else load_types(self.types).all

    async def observer(self, stack: AsyncExitStack, part: str) -> "Observer | None":
        """Before the parts it observes: it ends after them."""
        from tidegate.rpc.recording import Announcer
        from tidegate.rpc.telemetry import Several
        from tidegate.rpc.trace import TraceFile

        observers: list[Observer] = []
        if self.trace is not None:
            observers.append(stack.enter_context(TraceFile(self.trace, part, sample=self.trace_sample)))
        if self.telemetry:
            observers.append(await stack.enter_async_context(Announcer(self.options())))
        return Several(*observers) if observers else None

    def arguments(self) -> list[str]:
        """The same options for a process we start; what may have a password in it goes by `environment`."""
        given: list[str] = ["--backend", self.backend, "--namespace", self.namespace]
        given += ["--window", str(self.window)]
        for name, value in (
            ("--types", self.types),
            ("--secret-file", self.secret_file),
            ("--default-gateway", self.default_gateway),
            ("--username", self.username),
            ("--password-file", self.password_file),
            ("--trace", self.trace),
        ):
            if value:
                given += [name, str(value)]
        given += ["--trace-sample", str(self.trace_sample)]
        return [*given, "--telemetry"] if self.telemetry else given

    def environment(self) -> dict[str, str]:
        """Variables for a process we start: anybody on the machine may read command lines."""
        return {
            "TIDEGATE_URL": self.url,
            "TIDEGATE_RPC_AMQP": self.amqp,
            "TIDEGATE_RPC_REDIS": self.redis,
        }

    def _secret(self) -> bytes:
        if self.secret_file is not None:
            return _first_line(self.secret_file).encode()
        return os.environ.get("TIDEGATE_RPC_SECRET", "").encode()

    def _password(self) -> str | None:
        if self.password_file is not None:
            return _first_line(self.password_file)
        return os.environ.get("TIDEGATE_PASSWORD") if self.username is not None else None


def _first_line(path: Path) -> str:
    from tidegate.rpc.errors import RpcError

    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except OSError as error:
        raise RpcError(
            f"{path}: {error.strerror}", hint="give a file whose first line is the secret"
        ) from None


async def _open(
    make: "Callable[[AsyncExitStack], Awaitable[list[Any]]]", stack: AsyncExitStack
) -> list[Any]:
    """Open parts; if a server is not there yet, say so once and wait for it, as after a restart of it."""
    is_told = False
    while True:
        async with AsyncExitStack() as attempt:
            try:
                waits = await make(attempt)
            except TidegateError as error:
                if not _is_away(error):
                    raise
                if not is_told:
                    typer.echo(f"waiting: {error}", err=True)
                    is_told = True
            else:
                await stack.enter_async_context(attempt.pop_all())
                return waits
        await asyncio.sleep(_RETRY_SECONDS)


def _is_away(error: BaseException | None) -> bool:
    """Whether a server did not answer at all; one that says no would say it again."""
    from tidegate.client.errors import ConnectionLost, Refused, ServerDisconnected

    while error is not None:
        if isinstance(error, Refused | ServerDisconnected) or "Auth" in type(error).__name__:
            return False
        if isinstance(error, ConnectionLost | ConnectionError) or type(error).__name__ == "ConnectionError":
            return True
        error = error.__cause__
    return False


def serve(what: str, make: "Callable[[AsyncExitStack], Awaitable[list[Any]]]") -> None:
    """Run parts until Ctrl-C or SIGTERM: `make` opens them and gives what to wait for; `what` is said when all are."""
    from tidegate.cli.client_options import SIGTERM_STATUS, run

    log.configure("warning")
    for library in ("aio_pika", "aiormq"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # what matters of it is told by us

    async def work() -> int:
        async with AsyncExitStack() as stack:
            waits = await _open(make, stack)
            typer.echo(what)
            sys.stdout.flush()
            done, pending = await asyncio.wait(
                [asyncio.ensure_future(wait) for wait in waits], return_when=asyncio.FIRST_COMPLETED
            )
            for task in pending:
                task.cancel()
            for task in done:
                task.result()
        return 1

    status = run(work())
    # Asked to stop, it stopped in order.
    raise typer.Exit(0 if status == SIGTERM_STATUS else status)
