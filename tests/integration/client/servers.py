"""Servers for tests of the client: real brokers, a cable that can be cut, and a server that misbehaves."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tidegate.mqtt import Connack, Packet, PacketReader, encode_packet
from tidegate.testing.ports import free_port

DEADLINE = 20.0


@contextmanager
def mosquitto(folder: Path, *settings: str, anonymous: bool = True) -> Iterator[int]:
    """A Mosquitto of our own; gives its port. `settings` are further lines of its configuration."""
    port = free_port()
    config = folder / "mosquitto.conf"
    lines = [f"allow_anonymous {str(anonymous).lower()}", "max_queued_messages 0", *settings]
    if os.getuid() == 0:
        lines.append("user root")  # It would become another user, who cannot read the test's files.
    lines.append(f"listener {port} 127.0.0.1")
    config.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen(["mosquitto", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        wait_listening(port)
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE)


def wait_listening(port: int) -> None:
    end = time.monotonic() + DEADLINE
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


async def wait_until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


class Cable:
    """Passes bytes between clients and a broker until it is cut; new connections work again at once."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.port = 0

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, far_writer))
                group.create_task(_copy(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}
            for end in (writer, far_writer):
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while (data := await reader.read(4096)) and not writer.is_closing():
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


@asynccontextmanager
async def cable(target: int) -> AsyncIterator[Cable]:
    line = Cable(target)
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        line.cut()
        await wait_until(lambda: not line._writers)


class Peer:
    """The server's end of one connection, driven packet by packet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._packets = PacketReader()
        self._ready: list[Packet] = []
        self.writer = writer

    async def receive(self) -> Packet:
        while not self._ready:
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionError("the client closed the connection")
            self._ready = self._packets.feed(data)
        return self._ready.pop(0)

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode_packet(packet, self._packets.version or 5) for packet in packets))

    async def accept(self, **connack: Any) -> Packet:
        packet = await self.receive()
        self.send(Connack(**connack))
        return packet

    async def wait_closed(self) -> None:
        while await self._reader.read(65_536):
            pass


@asynccontextmanager
async def scripted(script: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[int]:
    """A server that runs `script` for every connection; its faults fail the test. Gives its port."""
    faults: list[Exception] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(Peer(reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass  # The client left, or the test is over.
        except Exception as fault:  # noqa: BLE001 - raised again when the test ends
            faults.append(fault)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    if faults:
        raise faults[0]
