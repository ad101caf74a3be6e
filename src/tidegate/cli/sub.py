"""`tidegate sub`: print or store what is published."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from tidegate.cli import client_options as options
from tidegate.cli.message_format import FormatError, as_json, compile_pattern, escape_controls
from tidegate.cli.status import ExitStatus
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.client import Client, Message


@options.with_server()
def command(
    server: options.Server,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="A topic filter, + and # allowed; may be repeated.")
    ],
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Highest QoS to get.")] = 0,
    count: Annotated[int | None, typer.Option("--count", "-C", min=1, help="End after so many.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", "-W", min=0, help="In seconds.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Topic, then payload.")] = False,
    format: Annotated[
        str | None, typer.Option("--format", "-F", help="%t topic, %p payload, %q QoS, %I time, %j JSON, …")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    no_newline: Annotated[bool, typer.Option("--no-newline", "-N", help="Nothing after a message.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Append to this file instead of standard output.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Each payload in a file of its own, in this folder.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--filter-out", "-T", help="Leave these out; may be repeated.")
    ] = None,
    no_retained: Annotated[bool, typer.Option("--no-retained", "-R", help="Only what is new.")] = False,
    retained_only: Annotated[
        bool, typer.Option("--retained-only", help="Only retained messages; end at the first new one.")
    ] = False,
    no_local: Annotated[bool, typer.Option("--no-local", help="Not our own messages (MQTT 5).")] = False,
    retain_as_published: Annotated[
        bool, typer.Option("--retain-as-published", help="Keep the flag of the publisher (MQTT 5).")
    ] = False,
    retain_handling: Annotated[
        int, typer.Option(min=0, max=2, help="Retained: 0 send, 1 if new subscription, 2 never (MQTT 5).")
    ] = 0,
    identifier: Annotated[
        int | None, typer.Option(min=1, max=268_435_455, help="Subscription Identifier (MQTT 5).")
    ] = None,
    session_expiry: Annotated[
        int, typer.Option("--session-expiry", "-x", min=0, help="Seconds the session outlives us (MQTT 5).")
    ] = 0,
    keep_session: Annotated[
        bool, typer.Option("--no-clean", "-c", help="Go on with the session of this --id.")
    ] = False,
    reconnect: Annotated[bool, typer.Option("--reconnect", help="Come back after a loss.")] = False,
    user_property: options.Pairs = None,
    quiet: options.Quiet = False,
) -> None:
    """Subscribe at any MQTT broker and print what comes.

    Messages go to standard output, everything else to standard error. Exits with 1 if --timeout ends it
    before --count messages came.
    """
    if keep_session and not server.client_id:
        raise typer.BadParameter("--no-clean needs --id: a session is found by its client identifier")
    if sum((verbose, format is not None, json)) > 1:
        raise typer.BadParameter("give one of --verbose, --format and --json")
    if retained_only and no_retained:
        raise typer.BadParameter("--retained-only and --no-retained leave nothing")
    try:
        render = as_json if json else compile_pattern(format or ("%t %p" if verbose else "%p"))
    except FormatError as error:
        raise typer.BadParameter(f"--format: {error}") from None
    if keep_session and not session_expiry and server.is_version_5 and not quiet:
        print(
            "warning: --no-clean keeps nothing in MQTT 5 unless the session outlives the connection\n"
            "hint: add --session-expiry SECONDS (-x 3600 for an hour)",
            file=sys.stderr,
        )
    wanted = Wanted(count=count, exclude=exclude or [], no_retained=no_retained, retained_only=retained_only)
    pairs = options.parse_pairs(user_property)

    async def work() -> int:
        client = server.client(
            session_expiry_interval=session_expiry,
            clean_start=not keep_session,
            reconnect=reconnect,
            manual_ack=True,
        )
        with Sink.open(render, output, output_dir, b"" if no_newline else b"\n") as sink:
            async with client:
                await client.subscribe(
                    *topic,
                    qos=qos,
                    no_local=no_local,
                    retain_as_published=retain_as_published,
                    retain_handling=2 if no_retained else retain_handling,
                    identifier=identifier,
                    user_properties=pairs,
                )
                return await _print_all(client, sink, wanted, timeout)

    try:
        status = options.run(work())
    except TidegateError as error:
        status = ExitStatus.FAILURE if quiet else options.report_refusal(error, server.username)
    except BrokenPipeError:
        # The reader of our output has enough, as `head` does: that is an end, not a fault. What Python still
        # holds for standard output must not be flushed into the broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = ExitStatus.OK
    raise typer.Exit(status)


@dataclass(slots=True, kw_only=True)
class Wanted:
    """Which messages count, and when it is enough."""

    count: int | None
    exclude: list[str]
    no_retained: bool
    retained_only: bool
    taken: int = field(default=0, init=False)

    @property
    def is_enough(self) -> bool:
        return self.count is not None and self.taken >= self.count

    def admits(self, message: "Message") -> bool:
        from tidegate.mqtt.topics import matches

        if self.no_retained and message.retain:
            return False
        return not any(matches(topic_filter, message.topic) for topic_filter in self.exclude)


class Sink:
    """Where messages are written: standard output, one file, or a file each."""

    def __init__(
        self,
        render: Callable[["Message", datetime], bytes],
        stream: BinaryIO,
        folder: Path | None,
        end: bytes,
    ) -> None:
        self._render = render
        self._stream = stream
        self._folder = folder
        self._end = end
        self._number = 0
        self._is_terminal = stream.isatty()

    @classmethod
    def open(
        cls,
        render: Callable[["Message", datetime], bytes],
        output: Path | None,
        folder: Path | None,
        end: bytes,
    ) -> "Sink":
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            stream = sys.stdout.buffer if output is None else output.open("ab")
        except OSError as error:
            raise typer.BadParameter(f"{error.filename}: {error.strerror}") from None
        return cls(render, stream, folder, end)

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._stream is not sys.stdout.buffer:
            self._stream.close()

    def write(self, message: "Message") -> None:
        if self._folder is not None:
            self._number += 1
            # Strangers choose topics: as a file name one has no separators, no dots in front, and an end.
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in message.topic)[:100]
            (self._folder / f"{self._number:06d}-{name}").write_bytes(message.payload)
            return
        line = self._render(message, datetime.now(UTC))
        self._stream.write((escape_controls(line) if self._is_terminal else line) + self._end)

    def flush(self) -> None:
        self._stream.flush()


async def _print_all(client: "Client", sink: Sink, wanted: Wanted, timeout: float | None) -> int:
    """Write until there is enough; a message is acknowledged after it was written."""
    try:
        async with asyncio.timeout(timeout):
            async for message in client.messages:
                if wanted.retained_only and not message.retain:
                    break
                if wanted.admits(message):
                    sink.write(message)
                    wanted.taken += 1
                if not len(client.messages) or wanted.is_enough:
                    sink.flush()  # In a stream of messages, once for all that came together.
                message.ack()
                if wanted.is_enough:
                    break
    except TimeoutError:
        if wanted.count is None:
            return ExitStatus.OK
        typer.echo(f"{wanted.taken} of {wanted.count} messages came in {timeout:g} s", err=True)
        return ExitStatus.FAILURE
    finally:
        if sys.exc_info()[0] is not BrokenPipeError:
            sink.flush()
    return ExitStatus.OK
