"""Where the parts of a session send their packets: encoded for the connection there is, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Packet

T_contra = TypeVar("T_contra", contravariant=True)


class Waiter(Protocol[T_contra]):
    """Who waits for an answer. An `asyncio.Future` is one; the core of the client needs no more of it."""

    def done(self) -> bool: ...
    def set_result(self, result: T_contra, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Wire:
    """Open between CONNACK and the end of a connection; what is sent while it is closed is lost on purpose.

    Only acknowledgements are sent without looking at `is_open`; they mean nothing to the next connection.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._max_packet_size: int | None = None
        self._write: Callable[[bytes], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._write is not None

    def open(self, write: Callable[[bytes], None], max_packet_size: int | None) -> None:
        self._write = write
        self._max_packet_size = max_packet_size

    def close(self) -> None:
        self._write = None

    def send(self, packet: Packet) -> None:
        """Raises `PacketTooLarge` [MQTT5-3.2.2-15] and what else the encoder refuses."""
        if self._write is not None:
            self._write(encode_packet(packet, self.version, max_packet_size=self._max_packet_size))
