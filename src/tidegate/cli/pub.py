"""`tidegate pub`: publish messages from the command line, a file or standard input."""

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import client_options as options
from tidegate.cli.status import ExitStatus
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.client import Acknowledgement, Client
    from tidegate.client.fields import MessageFields

# QoS 1 and 2 messages on their way at a time; below the client's own bound, so that it never refuses.
WINDOW = 500
_LINES_AHEAD = 1000


@options.with_server()
def command(
    server: options.Server,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where to publish.")],
    message: Annotated[str | None, typer.Option("--message", "-m", help="The payload.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The payload is in this file.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-s", help="Standard input is the payload.")] = False,
    lines: Annotated[
        bool, typer.Option("--lines", "-l", help="Every line of standard input is a message.")
    ] = False,
    null: Annotated[bool, typer.Option("--null", "-n", help="An empty payload.")] = False,
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="QoS of the message.")] = 0,
    retain: Annotated[bool, typer.Option("--retain", "-r", help="The server keeps it.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Send it so many times.")] = 1,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between repetitions.")] = 0.0,
    content_type: Annotated[str | None, typer.Option(help="MQTT 5, as are the next seven.")] = None,
    response_topic: Annotated[str | None, typer.Option(help="Where an answer should go.")] = None,
    correlation_data: Annotated[str | None, typer.Option(help="What an answer should carry.")] = None,
    expiry: Annotated[int | None, typer.Option(min=0, help="Seconds until nobody wants it any more.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Mark the payload as UTF-8 text.")] = False,
    topic_alias: Annotated[int | None, typer.Option(min=1, max=65_535, help="Sent as the topic.")] = None,
    user_property: options.Pairs = None,
    session_expiry: Annotated[int, typer.Option("--session-expiry", "-x", min=0, help="Seconds.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what was sent.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Publish to any MQTT broker.

    Exits with 0 when every message was sent and, at QoS 1 and 2, acknowledged.
    """
    if sum((message is not None, file is not None, stdin, lines, null)) != 1:
        raise typer.BadParameter("give one of --message, --file, --stdin, --lines and --null")
    if lines and repeat > 1:
        raise typer.BadParameter("--repeat does not go with --lines")
    fields: MessageFields = {
        "content_type": content_type,
        "response_topic": response_topic,
        "correlation_data": None if correlation_data is None else correlation_data.encode(),
        "message_expiry_interval": expiry,
        "payload_format_indicator": 1 if text else None,
        "topic_alias": topic_alias,
        "user_properties": options.parse_pairs(user_property),
    }
    payload = None if lines else _read_payload(message, file, stdin)

    async def work() -> int:
        async with server.client(session_expiry_interval=session_expiry) as client:
            payloads = _lines() if payload is None else _repeat(payload, repeat, interval)
            sent = await _publish_all(client, payloads, topic, qos, retain, fields)
        if verbose:
            print(f"{sent} message(s) sent to {topic}", file=sys.stderr)
        return ExitStatus.OK

    try:
        status = options.run(work())
    except TidegateError as error:
        status = ExitStatus.FAILURE if quiet else options.report_refusal(error, server.username)
    raise typer.Exit(status)


def _read_payload(message: str | None, file: Path | None, stdin: bool) -> bytes:
    if message is not None:
        # What the shell passed that is not UTF-8 goes out as the bytes it was.
        return message.encode(errors="surrogateescape")
    if stdin:
        return sys.stdin.buffer.read()
    if file is None:
        return b""
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"--file {file}: {error.strerror}") from None


async def _publish_all(
    client: "Client",
    payloads: AsyncIterator[bytes],
    topic: str,
    qos: int,
    retain: bool,
    fields: "MessageFields",
) -> int:
    """Publish in order with many acknowledgements open; gives how many there were."""
    sent = 0
    pending: deque[asyncio.Future[Acknowledgement]] = deque()
    try:
        async for payload in payloads:
            sent += 1
            if qos == 0:
                await client.publish(topic, payload, retain=retain, **fields)
                continue
            # Answers that are there already are looked at now: a refusal should not wait for the last line.
            while pending and (pending[0].done() or len(pending) >= WINDOW):
                await _acknowledged(client, pending.popleft())
            pending.append(client.publish_nowait(topic, payload, qos=qos, retain=retain, **fields))
        while pending:
            await _acknowledged(client, pending.popleft())
    finally:
        for future in pending:
            future.cancel()
    return sent


async def _acknowledged(client: "Client", future: "asyncio.Future[Acknowledgement]") -> None:
    from tidegate.client import OperationTimeout

    try:
        async with asyncio.timeout(client.options.operation_timeout):
            await future
    except TimeoutError:
        raise OperationTimeout(
            "the server does not acknowledge", hint="is it overloaded? try again later"
        ) from None


async def _repeat(payload: bytes, times: int, interval: float) -> AsyncIterator[bytes]:
    for number in range(times):
        if number and interval:
            await asyncio.sleep(interval)
        yield payload


async def _lines() -> AsyncIterator[bytes]:
    """Lines of standard input without their ends, as they come.

    A thread reads, since not every standard input can be waited for (a file cannot). It is a daemon and reads
    the descriptor itself: nobody has to press Enter before an interrupted command can end.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    ahead = threading.BoundedSemaphore(_LINES_AHEAD)

    def hand_over(line: bytes | None) -> None:
        ahead.acquire()
        try:
            loop.call_soon_threadsafe(queue.put_nowait, line)
        except RuntimeError:
            pass  # The loop is closed: the command has ended.

    def read() -> None:
        rest = b""
        while chunk := os.read(sys.stdin.fileno(), 65_536):
            *complete, rest = (rest + chunk).split(b"\n")
            for line in complete:
                hand_over(line)
        if rest:
            hand_over(rest)
        hand_over(None)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await queue.get()) is not None:
        ahead.release()
        yield line
