"""A peer that loses, doubles, refuses or hangs up: the tool must say so, with exact numbers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidegate import load
from tidegate.load.streams import packet_bounds


class Faulty:
    """One subscriber, one publisher, MQTT 3.1.1 at QoS 0; `deliver` says how often a message arrives."""

    def __init__(self, listener: socket.socket, *, code: int = 0, closes_after: int = 1 << 60) -> None:
        self.code = code
        self.closes_after = closes_after
        self.forwarded = 0
        self._listener = listener
        self._subscriber: socket.socket | None = None

    def deliver(self, number: int) -> int:
        return 1

    def serve(self) -> None:
        for _ in range(2):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if self._greet(connection):
                    self._subscriber = connection.dup()
                else:
                    self._forward(connection)
        if self._subscriber is not None:
            self._subscriber.close()

    def _greet(self, connection: socket.socket) -> bool:
        """Answer CONNECT, and SUBSCRIBE if one follows; True for the subscriber."""
        assert connection.recv(1000)[0] == 0x10
        connection.sendall(bytes((0x20, 2, 0, self.code)))
        if self.code or self._subscriber is not None:
            return False
        assert connection.recv(1000)[0] == 0x82
        connection.sendall(b"\x90\x03\x00\x01\x00")
        return True

    def _forward(self, connection: socket.socket) -> None:
        data = b""
        while chunk := connection.recv(65_536):
            data += chunk
            pos = 0
            out = []
            while pos < len(data) and (bounds := packet_bounds(data, pos)):
                if data[pos] == 0x30:
                    out.append(data[pos : bounds[1]] * self.deliver(self.forwarded))
                    self.forwarded += 1
                pos = bounds[1]
            data = data[pos:]
            assert self._subscriber is not None
            try:
                self._subscriber.sendall(b"".join(out))
            except OSError:
                return
            if self.forwarded >= self.closes_after:
                return


class Losing(Faulty):
    def deliver(self, number: int) -> int:
        return 0 if number % 10 == 3 else 1


class LosingAll(Faulty):
    def deliver(self, number: int) -> int:
        return 0


class Doubling(Faulty):
    def deliver(self, number: int) -> int:
        return 2 if number % 10 == 3 else 1


@contextmanager
def running(kind: type[Faulty], **options: int) -> Iterator[tuple[int, Faulty]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = kind(listener, **options)
        thread = threading.Thread(target=peer.serve)
        thread.start()
        try:
            yield listener.getsockname()[1], peer
        finally:
            # Wakes an accept() that still waits.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def one_pair(port: int, **options: object) -> load.Result:
    given = {"seconds": 0.3, "warmup": 0.0, "quiet": 0.3} | options
    return load.run(mode="pairs", port=port, publishers=1, subscribers=1, **given)


def test_lost_messages_are_counted_and_do_not_stop_the_run() -> None:
    with running(Losing) as (port, peer):
        result = one_pair(port)
    assert peer.forwarded == result.sent > 2000  # more than one window
    assert result.drops == sum(1 for number in range(result.sent) if number % 10 == 3)
    assert result.received == result.sent - result.drops
    assert not result.is_exact


def test_a_run_goes_on_when_everything_is_lost() -> None:
    with running(LosingAll) as (port, _):
        result = one_pair(port, seconds=1.2)
    assert result.sent == result.drops
    assert result.sent > 2000  # the window was written off and filled again
    assert result.received == 0


def test_doubled_messages_are_repeats_and_hide_no_loss() -> None:
    with running(Doubling) as (port, _):
        result = one_pair(port)
    assert result.repeats == sum(1 for number in range(result.sent) if number % 10 == 3)
    assert result.drops == 0
    assert result.received == result.sent + result.repeats


def test_a_refused_connection_carries_the_brokers_code() -> None:
    with running(Faulty, code=5) as (port, _), pytest.raises(load.ConnectionRefused) as caught:
        one_pair(port)
    assert caught.value.code == 5


def test_a_connection_that_the_broker_closes_ends_the_run() -> None:
    with running(Faulty, closes_after=1) as (port, _), pytest.raises(load.ConnectionLost):
        one_pair(port)
