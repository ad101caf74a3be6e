"""`tidegate top`: who publishes, who is held back, what waits for whom and how groups share their work, live."""

import asyncio
import json as json_module
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import client_options as options
from tidegate.cli.status import ExitStatus
from tidegate.console import feed as topics
from tidegate.console.feed import Feed, Sort, View
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tidegate.client import Client

# Documents come every second while somebody listens: a node that says nothing for so long has none to send.
FIRST_REPORT_TIMEOUT = 3.0
ONCE_ROWS = 20
_RECONNECT_MAX_DELAY = 5.0
KEYS = {"g": View.GROUPS, "a": View.ACCOUNTS}
_PIPE_WIDTH = 140  # a pipe has no width of its own


class NoReportsError(TidegateError):
    """The server does not tell what `top` shows; `server` is what it calls itself, if it does."""

    def __init__(self, address: str, server: str) -> None:
        super().__init__(f"{address}{f' ({server})' if server else ''} sends no $SYS/tide reports")
        self.server = server
        self.hint = (
            "top needs a Tidegate broker with features.sys_interval above 0, and the right to read $SYS/#; "
            "any broker's own topics: tidegate sub -t '$SYS/#' -v"
        )


@options.with_server(has_will=False, keep_alive=10)
def command(
    server: options.Server,
    view: Annotated[
        View,
        typer.Option(help="traffic: publishers and queues; groups: shared subscriptions; accounts: what users cost."),
    ] = View.TRAFFIC,
    interval: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between two pictures.")] = 1.0,
    sort: Annotated[
        Sort | None,
        typer.Option(help="Publishers by this; queue: by what is held. Default: held, suspicious, fastest."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=100, help="Rows a table. Default: what fits, or 20 with --once.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one picture and end, as without a terminal.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the reports as one JSON object and end.")
    ] = False,
) -> None:
    """Watch a running broker: its load, its publishers and what back-off makes of them, its queues and its groups.

    q or Ctrl-C ends it, g shows shared subscriptions or traffic, a accounts, s changes the order of publishers. It is
    an ordinary client that reads $SYS topics, so it works from anywhere and needs the right to read them. The user who
    runs the node needs none, and gets in while it is full.
    """
    is_live = sys.stdout.isatty() and not once and not json

    async def work() -> int:
        way = server.as_operator()
        async with way.client(reconnect=is_live, reconnect_max_delay=_RECONNECT_MAX_DELAY) as client:
            watch = await Watch.begin(client)
            try:
                await watch.wait_first_report(until_complete=not is_live)
                if json:
                    typer.echo(json_module.dumps(as_object(watch.feed)))
                elif is_live:
                    await _show(watch, view, interval, sort, limit)
                else:
                    _print_once(watch.feed, view, sort, limit or ONCE_ROWS)
            finally:
                await watch.end()
        return ExitStatus.OK

    try:
        status = options.run(work())
    except TidegateError as error:
        status = options.report_refusal(error, server.username)
    raise typer.Exit(status)


@dataclass(slots=True)
class Watch:
    """A client that reads reports into a feed until it is ended or the connection is lost for good."""

    client: "Client"
    feed: Feed
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    failure: TidegateError | None = None
    _reported: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None

    @classmethod
    async def begin(cls, client: "Client") -> "Watch":
        watch = cls(client, Feed())
        watch._task = asyncio.create_task(watch._read())
        try:
            await client.subscribe(*topics.TOPICS)
        except BaseException:
            await watch.end()
            raise
        return watch

    async def end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait_first_report(self, *, until_complete: bool) -> None:
        """Wait for the first report, or for one of each kind; raises `NoReportsError` if none comes."""
        from tidegate.cli.top_view import printable

        feed = self.feed
        try:
            async with asyncio.timeout(FIRST_REPORT_TIMEOUT):
                while not (feed.is_complete if until_complete else feed.is_tidegate):
                    self._reported.clear()
                    await self._reported.wait()
                    if self.failure is not None:
                        raise self.failure
        except TimeoutError:
            # An older node tells less than we show: that is a picture with gaps, not a fault.
            if not feed.is_tidegate:
                server = printable(feed.values.get(topics.VERSION, ""))
                raise NoReportsError(str(self.client.endpoint), server) from None

    async def _read(self) -> None:
        try:
            async for message in self.client.messages:
                self.feed.take(message.topic, message.payload, time.monotonic(), is_retained=message.retain)
                self._reported.set()
        except TidegateError as error:
            self.failure = error
        finally:
            self._reported.set()
            self.is_over.set()


def as_object(feed: Feed) -> dict[str, Any]:
    """The reports as they came, and the node's counters; None for what it did not tell."""
    return {
        "node": feed.values.get(topics.NODE),
        "version": feed.values.get(topics.VERSION),
        "connections": feed.number(topics.CONNECTED),
        "memory_bytes": feed.number(topics.MEMORY),
        "received_per_second": feed.rate(topics.RECEIVED),
        "sent_per_second": feed.rate(topics.SENT),
        "dropped": feed.number(topics.DROPPED),
        "load": feed.documents.get(topics.LOAD),
        "publishers": feed.documents.get(topics.PUBLISHERS),
        "queues": feed.documents.get(topics.QUEUES),
        "groups": feed.documents.get(topics.GROUPS),
        "accounts": feed.documents.get(topics.ACCOUNTS),
    }


def _print_once(feed: Feed, view: View, order: Sort | None, rows: int) -> None:
    from tidegate.cli.top_view import list_screen, screen, status_note

    note = status_note(feed, time.monotonic(), view, is_connected=True)
    if view is not View.TRAFFIC:
        picture = list_screen(feed, view, rows=rows, note=note)
    else:
        picture = screen(feed, sort=order, publishers=rows, queues=rows, note=note)
    _console().print(picture)


async def _show(watch: Watch, view: View, interval: float, order: Sort | None, limit: int | None) -> None:
    """Draw until q is pressed; raises what ended the connection, if trying again cannot help."""
    from rich.live import Live

    console = _console()
    orders: list[Sort | None] = [None, *Sort]
    place = orders.index(order)
    redraw = asyncio.Event()

    def on_key(key: str) -> None:
        nonlocal place, view
        if key in ("q", "Q"):
            watch.is_over.set()
        elif key in KEYS:
            view = View.TRAFFIC if view is KEYS[key] else KEYS[key]
        elif key == "s":
            place = (place + 1) % len(orders)
        redraw.set()

    over = asyncio.create_task(watch.is_over.wait())
    try:
        with _keys(on_key), Live(console=console, screen=True, auto_refresh=False) as live:
            while not watch.is_over.is_set():
                live.update(_picture(watch, view, orders[place], console.height, limit), refresh=True)
                redraw.clear()
                pressed = asyncio.create_task(redraw.wait())
                await asyncio.wait([over, pressed], timeout=interval, return_when=asyncio.FIRST_COMPLETED)
                pressed.cancel()
    finally:
        over.cancel()
    if watch.failure is not None:
        raise watch.failure


def _picture(
    watch: Watch, view: View, order: Sort | None, height: int, limit: int | None
) -> "RenderableType":
    from rich.text import Text

    from tidegate.cli.top_view import LIST_FRAME_LINES, list_screen, screen, share_rows, status_note

    feed = watch.feed
    note = status_note(feed, time.monotonic(), view, is_connected=watch.client.is_connected)
    if view is not View.TRAFFIC:
        key = next(key for key, shown in KEYS.items() if shown is view)
        note = note or Text(f"{key} shows traffic, q ends", style="dim")
        rows = max(2, height - LIST_FRAME_LINES)
        return list_screen(feed, view, rows=rows if limit is None else min(limit, rows), note=note)
    publishers, queues = share_rows(height, feed)
    if limit is not None:
        publishers, queues = min(limit, publishers), min(limit, queues)
    note = note or Text(
        f"order: {order or 'trouble first'} (s changes it, g shows groups, a accounts, q ends)", style="dim"
    )
    return screen(feed, sort=order, publishers=publishers, queues=queues, note=note)


@contextmanager
def _keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_key` for each key pressed; the terminal is as before when the block ends, however it ends."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        keys = os.read(descriptor, 64).decode(errors="ignore")
        if not keys:
            loop.remove_reader(descriptor)  # the terminal is gone
        for key in keys:
            on_key(key)

    # Keys come at once and unseen; Ctrl-C stays a signal.
    tty.setcbreak(descriptor, termios.TCSANOW)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _console() -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, no_color=bool(os.environ.get("NO_COLOR")) or None, highlight=False)
