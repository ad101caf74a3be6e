"""The process that receives for a streaming query: `python -m tidegate.spark.spool`, started by the reader.

It owns one persistent MQTT session. What comes is written to the spool, synced, and only then acknowledged; so a
message is with the broker or on disk at every moment, whoever is killed. Its options come as one line of JSON on
standard input, which stays open: when it ends, the reader is gone, and this process finishes what it has and leaves.
How it fares is in `status.json`.

Bounded by: the Receive Maximum (not acknowledged), `segmentRows` (in memory) and `maxSpoolBytes` (on disk). When the
disk's share is full it stops taking, hence stops acknowledging, hence the broker stops sending.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidegate.client import Client, ClientOptions, Message, Subscription
from tidegate.errors import TidegateError
from tidegate.spark.batches import to_batch
from tidegate.spark.connect import connect
from tidegate.spark.errors import SpoolError
from tidegate.spark.options import MqttOptions, read_options
from tidegate.spark.pace import Pace
from tidegate.spark.segments import SegmentWriter, Spool

QUIET = 0.002  # without a message for this long, what came is written: a small Receive Maximum must not stall
GATHER = 0.05  # the longest a message waits for others before it is written and synced
LOOK = 0.05  # between two looks at a full spool
REPORT = 1.0  # between two load reports
LOCK_SECONDS = 30.0  # a process whose reader was killed ends by itself well before
STATUS = "status.json"
IDENTITY = "identity.json"


class SpoolProcess:
    """Receives until `stop` is called; `run` raises what makes going on pointless."""

    def __init__(self, options: MqttOptions, spool: Spool) -> None:
        self._options = options
        self._spool = spool
        # One thread: batches are written in order, and a segment is finished between two of them.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._writer: SegmentWriter | None = None
        self._opened_at = 0.0
        self._next = 0
        self._pace = Pace()
        self._stopping = asyncio.Event()
        self._counters = {"rows": 0, "batches": 0, "segments": 0, "waits_for_room": 0, "reports": 0}

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        spool = self._spool
        saved = await self._in_thread(spool.recover)
        self._next = spool.end()
        spool.take_done()
        identity = self._identity()
        size = max(self._options.receive_maximum, 1000)
        options = self._options.client_options(
            client_id=identity["client_id"],
            clean_start=False,
            session_expiry_interval=self._options.session_expiry,
            manual_ack=True,
            reconnect=True,
            reconnect_min_delay=0.05,
            reconnect_max_delay=5.0,
            receive_maximum=self._options.receive_maximum,
            receive_queue_size=size,
            operation_timeout=None,
        )
        self._say("connecting", saved=saved)
        client = await self._connect(options)
        if client is None:
            return
        try:
            await self._subscribe(client, identity)
            self._say("connected", client_id=client.client_id, saved=saved)
            await self._work(client)
        finally:
            await client.disconnect()
            await self._in_thread(self._finish)
            self._thread.shutdown()

    def _identity(self) -> dict[str, Any]:
        """The client identifier goes with the spool, so that a later process continues the session."""
        identity = self._spool.read_json(IDENTITY)
        wanted = self._options.client_id or identity.get("client_id") or f"spark-{secrets.token_hex(8)}"
        if identity.get("client_id") != wanted:
            identity = {"client_id": wanted, "filters": []}
            self._spool.write_whole(IDENTITY, json.dumps(identity))
        return identity

    async def _connect(self, options: ClientOptions) -> Client | None:
        """Connect, however long the broker is away; None if we are to stop before."""

        def on_fault(error: TidegateError) -> None:
            self._say("connecting", error=str(error))

        connecting = asyncio.create_task(connect(self._options.endpoint, options, on_fault=on_fault))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([connecting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if connecting.done():
            return await connecting
        connecting.cancel()
        await asyncio.wait([connecting])
        return None

    async def _subscribe(self, client: Client, identity: dict[str, Any]) -> None:
        """Ask for what the options name, and end what an earlier run asked for and this one does not."""
        options = self._options
        known = set(identity["filters"]) if client.connack.session_present else set()
        gone = known - set(options.filters)
        if gone:
            await client.unsubscribe(*sorted(gone))
        # Also to what the session has: the client asks again after a lost session only for what it was granted. Retain
        # Handling 1 keeps the broker from repeating retained messages (MQTT 5).
        handling = 1 if options.mqtt_version == 5 else 0
        await client.subscribe(
            *(
                Subscription(topic_filter=each, qos=options.qos, retain_handling=handling)
                for each in options.filters
            )
        )
        identity["filters"] = list(options.filters)
        self._spool.write_whole(IDENTITY, json.dumps(identity))

    async def _work(self, client: Client) -> None:
        tasks = [
            asyncio.create_task(self._receive(client)),
            asyncio.create_task(self._close_in_time()),
            asyncio.create_task(self._stopping.wait()),
        ]
        if self._options.group is not None:
            tasks.append(asyncio.create_task(self._report(client)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _receive(self, client: Client) -> None:
        while True:
            messages = await self._gather(client)
            await self._wait_for_room()
            await self._keep(client, messages)

    async def _keep(self, client: Client, messages: list[Message]) -> None:
        """Write, then acknowledge: also if we are to stop meanwhile, or what is on disk would come again."""
        writing = asyncio.ensure_future(self._in_thread(self._write, messages, time.time_ns() // 1000))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise
        finally:
            if writing.done() and writing.exception() is None:
                client.ack_many(messages)

    async def _gather(self, client: Client) -> list[Message]:
        """Messages to write together: what is there, and what follows closely."""
        limit = self._options.segment_rows
        messages = await client.messages.get_many(limit)
        loop = asyncio.get_running_loop()
        until = loop.time() + GATHER
        while len(messages) < limit and loop.time() < until:
            try:
                async with asyncio.timeout(QUIET):
                    messages += await client.messages.get_many(limit - len(messages))
            except TimeoutError:
                break
        return messages

    async def _wait_for_room(self) -> None:
        limit = self._options.max_spool_bytes
        if self._spool.size_bytes() < limit:
            return
        self._counters["waits_for_room"] += 1
        await self._in_thread(self._finish)  # or the reader might wait for rows of ours, as we wait for it
        while self._spool.size_bytes() >= limit:
            await asyncio.sleep(LOOK)

    def _write(self, messages: list[Message], received_us: int) -> None:
        if self._writer is None:
            self._writer = SegmentWriter(self._spool, self._next)
            self._opened_at = time.monotonic()
        try:
            self._writer.append(to_batch(messages, received_us))
        except OSError:
            writer, self._writer = self._writer, None
            writer.abandon()
            raise
        self._next += len(messages)
        self._counters["rows"] += len(messages)
        self._counters["batches"] += 1
        if self._writer.rows >= self._options.segment_rows or self._is_due:
            self._finish()

    @property
    def _is_due(self) -> bool:
        age = time.monotonic() - self._opened_at
        return self._writer is not None and age >= self._options.segment_seconds

    async def _close_in_time(self) -> None:
        """No row waits longer than `segmentSeconds` to be seen."""
        while True:
            await asyncio.sleep(self._options.segment_seconds / 2)
            if self._is_due:
                await self._in_thread(self._finish)

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._writer = None
            self._counters["segments"] += 1

    async def _report(self, client: Client) -> None:
        """Tell the broker how Spark keeps up; the client itself only knows that its rows are on disk."""
        while True:
            await asyncio.sleep(REPORT)
            self._pace.add(self._spool.take_done())
            waiting = self._next - max(self._pace.end, self._spool.committed) + len(client.messages)
            self._counters["reports"] += client.report_load(
                queue_length=max(waiting, 0),
                processing_time=self._pace.seconds,
                count=self._pace.take_count(),
            )
            self._say("connected", **self._counters)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _say(self, state: str, **more: Any) -> None:
        self._spool.write_whole(STATUS, json.dumps({"state": state, "pid": os.getpid(), **more}))


@contextlib.contextmanager
def locked(spool: Spool, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """One process at a time receives into a spool; waits for one that is about to end."""
    with (spool.folder / "lock").open("a+") as file:
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise SpoolError(
                        f"the spool {spool.folder} is in use by process {spool.read_json(STATUS).get('pid')}",
                        hint="give every query a spool of its own",
                    ) from None
                time.sleep(LOOK)
        yield


async def _main(options: MqttOptions, spool: Spool) -> None:
    process = SpoolProcess(options, spool)
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            process.stop()

    loop.add_reader(0, on_input)
    await process.run()


def main() -> int:
    # Messages make no cycles, but tens of thousands live at a time: nothing is gained by looking through them.
    gc.freeze()
    gc.set_threshold(1_000_000, 10, 10)
    given = json.loads(_first_line())
    options = read_options(given, "source")
    assert options.spool is not None
    spool = Spool(options.spool)
    spool.create()
    try:
        with locked(spool):
            try:
                _run(options, spool)
            except (TidegateError, OSError) as error:
                hint = "is the disk full?" if isinstance(error, OSError) else getattr(error, "hint", "")
                report = {"state": "failed", "error": str(error), "hint": hint, "pid": os.getpid()}
                try:
                    spool.write_whole(STATUS, json.dumps(report))
                except OSError:
                    pass  # the disk is full indeed; the log has it
                print(error, file=sys.stderr)
                return 1
    except SpoolError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _run(options: MqttOptions, spool: Spool) -> None:
    try:
        import uvloop
    except ImportError:  # tidegate was shipped to the cluster without it
        asyncio.run(_main(options, spool))
    else:
        uvloop.run(_main(options, spool))


def _first_line() -> bytes:
    """Unbuffered, so that the end of the input is seen by the loop."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("the options are missing: this program is started by the reader")
        line += byte
    return line


if __name__ == "__main__":
    raise SystemExit(main())
