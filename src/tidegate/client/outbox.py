"""The outbox: what was accepted for publishing is on disk before it is sent, until the server has it.

How it keeps its promises over a crash of this process:

- A message is sent after its commit, so no packet identifier is ever on the wire that the file does not know.
- The identifier follows from the message's number, so a restarted process uses the same one again, without a second
  write; a server that kept the session recognises a repeated QoS 2 message by it [MQTT5-4.3.3-10].
- PUBREL is sent after the commit that notes the PUBREC. So a message whose PUBREL may have reached the server is never
  published again.
- Numbers are the order of sending. What does not fit into memory (`window` messages) waits on disk only.

If the server lost the session, QoS 2 messages of which no PUBREC came are published anew: none is lost, but those
that had been on their way may arrive twice, which nobody could tell; they are counted.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from tidegate.client.errors import OutboxError, OutboxFull
from tidegate.client.options import WhenFull
from tidegate.client.outbox_store import Contents, Done, OutboxStore, Row
from tidegate.client.publishing import STORED, Acknowledgement, Outgoing, Publisher
from tidegate.client.room import Room
from tidegate.client.waiters import Waiters
from tidegate.mqtt.codes import PacketType
from tidegate.mqtt.packets import Publish
from tidegate.mqtt.properties import Property, decode_properties, encode_properties

log = logging.getLogger(__name__)


class _Receipt:
    """Stands where the waiter of an ordinary publish does: the publisher tells it how a message ended."""

    __slots__ = ("_is_done", "_number", "_outbox")

    def __init__(self, outbox: Outbox, number: int) -> None:
        self._outbox = outbox
        self._number = number
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Acknowledgement, /) -> None:
        self._is_done = True
        self._outbox.finish(self._number)

    def set_exception(self, exception: Exception, /) -> None:
        self._is_done = True
        self._outbox.refuse(self._number, exception)


class Outbox:
    """Belongs to one client and one file. `size` bounds unfinished messages, on disk and in memory together."""

    def __init__(
        self, path: Path, *, size: int, when_full: WhenFull, window: int, publisher: Publisher
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self.when_full = when_full
        self._window = window
        self._publisher = publisher
        self._store = OutboxStore(path, self._announce)
        self._count = 0
        self._in_memory = 0
        self._last_number = 0
        self._last_loaded = 0
        self._last_committed = 0
        self._is_reading = False
        self._reads_to = 0
        self._is_closed = False
        self.room = Room(size, lambda: self._count)
        self.refused = 0
        """Messages the server, or the encoder, did not accept."""
        self.dropped = 0
        self._empty_waiters = Waiters()

    def __len__(self) -> int:
        """Messages accepted and not acknowledged by the server."""
        return self._count

    async def open(self) -> None:
        """Open the file and give the publisher what an earlier process left; raises `OutboxError`."""
        opened: asyncio.Future[Contents] = self._loop.create_future()
        self._store.start(self._window, _settle(opened))
        try:
            contents = await opened
        except asyncio.CancelledError:
            self._store.close(lambda _: None)
            raise
        self._count = contents.messages
        self._last_number = self._last_committed = contents.last_number
        self._publisher.hold_release = self._hold_release
        self._load(contents.rows, may_be_sent=True)
        if len(contents.rows) == contents.messages:
            self._last_loaded = contents.last_number

    def put(self, packet: Publish) -> asyncio.Future[Acknowledgement]:
        """Accept a message; the future is done when it is on disk. The caller has asked `room` or `make_room`."""
        packet.properties.pop(Property.TOPIC_ALIAS, None)  # It means nothing to a later connection.
        self._last_number += 1
        self._count += 1
        number = self._last_number
        accepted: asyncio.Future[Acknowledgement] = self._loop.create_future()
        row = Row(
            number,
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            encode_properties(packet.properties, PacketType.PUBLISH),
        )

        def on_committed(error: OutboxError | None) -> None:
            if error is not None:
                self._gone()
                if not accepted.done():
                    accepted.set_exception(error)
                return
            self._last_committed = number
            # Only if nothing in front of it is still on disk alone, or it would overtake.
            if self._last_loaded == number - 1 and self._in_memory < self._window and not self._is_reading:
                self._last_loaded = number
                self._hand_over(number, packet)
            else:
                self._refill()
            if not accepted.done():
                accepted.set_result(STORED)

        self._store.put(row, on_committed)
        return accepted

    def make_room(self) -> bool:
        """Whether a message can be put now, after the policy had its say; raises `OutboxFull`."""
        if self.room.is_free:
            return True
        if self.when_full is WhenFull.REFUSE:
            raise OutboxFull(
                f"the outbox holds {self._count} messages", hint="wait, or choose another outbox_when_full"
            )
        if self.when_full is WhenFull.DROP_OLDEST:
            oldest = self._publisher.drop_oldest_waiting()
            if oldest is not None:
                self.dropped += 1
                self._store.delete(oldest.number)
                self._gone(from_memory=True)
                return True
        return False

    def finish(self, number: int) -> None:
        """The server has the message."""
        self._store.delete(number)
        self._gone(from_memory=True)

    def refuse(self, number: int, error: Exception) -> None:
        """It will never be accepted; or the client ends, and the message stays for the next."""
        if self._is_closed:
            return
        self.refused += 1
        log.warning("a message of the outbox was refused", extra={"error": str(error)})
        self.finish(number)

    async def wait_empty(self) -> None:
        """Wait until the server has everything."""
        while self._count and not self._is_closed:
            await self._empty_waiters.wait()

    def seal(self) -> None:
        """From now on what fails does so because the client ends: it stays in the file."""
        self._is_closed = True
        self.room.close()
        self._empty_waiters.wake_all()

    async def close(self) -> None:
        """Write what is left to write and close the file."""
        self.seal()
        closed: asyncio.Future[None] = self._loop.create_future()
        self._store.close(_settle(closed))
        await asyncio.shield(closed)

    def statistics(self) -> dict[str, int]:
        return {
            "outbox_messages": self._count,
            "outbox_refused": self.refused,
            "outbox_dropped": self.dropped,
            "outbox_sent_anew": self._publisher.sent_anew,
        }

    def _hand_over(self, number: int, packet: Publish, *, is_released: bool = False) -> None:
        self._in_memory += 1
        outgoing = Outgoing(packet, _Receipt(self, number), number)
        if is_released:
            self._publisher.restore_released(outgoing)
        else:
            self._publisher.publish(outgoing)

    def _load(self, rows: list[Row], *, may_be_sent: bool = False) -> None:
        for row in rows:
            properties, _ = decode_properties(row.properties, 0, PacketType.PUBLISH)
            packet = Publish(
                topic=row.topic,
                payload=row.payload,
                qos=row.qos,
                retain=bool(row.retain),
                dup=may_be_sent,
                properties=properties,
            )
            self._last_loaded = row.number
            self._hand_over(row.number, packet, is_released=bool(row.released))

    def _refill(self) -> None:
        """Read on when half of what may be in memory is gone and there is more on disk."""
        if self._is_reading or self._is_closed or self._in_memory * 2 > self._window:
            return
        if self._last_loaded < self._last_committed:
            self._is_reading = True
            self._reads_to = self._last_committed
            self._store.read(self._last_loaded, self._window - self._in_memory, self._on_rows)

    def _on_rows(self, rows: list[Row] | OutboxError) -> None:
        self._is_reading = False
        if isinstance(rows, OutboxError) or self._is_closed:
            return  # Tried again with the next message that is put or finished.
        self._load(rows)
        if not rows:
            self._last_loaded = self._reads_to  # and not what was committed since
        else:
            self._refill()

    def _gone(self, *, from_memory: bool = False) -> None:
        self._count -= 1
        if from_memory:
            self._in_memory -= 1
            self._refill()
        self.room.wake()
        if not self._count:
            self._empty_waiters.wake_all()

    def _hold_release(self, outgoing: Outgoing, send_pubrel: Done) -> None:
        def on_committed(error: OutboxError | None) -> None:
            if error is None:  # else the server repeats its PUBREC on the next connection
                send_pubrel(None)

        self._store.release(outgoing.number, on_committed)

    def _announce(self, results: list[tuple[Done, object]]) -> None:
        """In the thread: hand results to the loop, unless it is gone with the client."""
        try:
            self._loop.call_soon_threadsafe(_tell, results)
        except RuntimeError:
            pass


def _tell(results: list[tuple[Done, object]]) -> None:
    for done, result in results:
        done(result)


def _settle(future: asyncio.Future[object] | asyncio.Future[Contents] | asyncio.Future[None]) -> Done:
    def settle(result: object) -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    return settle
