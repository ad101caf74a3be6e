"""Packets that were right once: a seeded source of mutated MQTT, and a crowd of connections that sends them.

Every mutant gets a connection of its own, because most end theirs: the stream is sent, the sending side is
closed, and the server must then close in turn. A connection that is still open `PATIENCE` later is a hang.
"""

import errno
import selectors
import socket
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.malformed import CASES
from tidegate.mqtt import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode_packet,
)
from tidegate.mqtt.properties import Property

PATIENCE: Final = 5.0
"""Seconds a connection may stay open after the client has finished."""
CROWD: Final = 48
"""Connections open at once."""


def _packets(version: int) -> list[Packet]:
    """One or more right packets of every kind a client may send after CONNECT."""
    message = {Property.TOPIC_ALIAS: 3, Property.USER_PROPERTY: [("key", "value")]} if version == 5 else {}
    return [
        Publish(topic="m/a", payload=b"payload"),
        Publish(topic="m/b/c", payload=bytes(200), qos=1, packet_identifier=7, properties=message),
        Publish(topic="m", payload=b"kept", qos=2, packet_identifier=8, retain=True),
        Puback(packet_identifier=1),
        Pubrec(packet_identifier=2),
        Pubrel(packet_identifier=8),
        Pubcomp(packet_identifier=2),
        Subscribe(packet_identifier=9, subscriptions=[Subscription(topic_filter="m/+/#", qos=2)]),
        Subscribe(packet_identifier=10, subscriptions=[Subscription(topic_filter="$share/group/m/#", qos=1)]),
        Unsubscribe(packet_identifier=11, topic_filters=["m/+/#", "m"]),
        Pingreq(),
        Disconnect(),
    ]


def connect(version: int, number: int) -> bytes:
    """A CONNECT with a bit of everything; `number` is in the client identifier."""
    properties = {Property.SESSION_EXPIRY_INTERVAL: 1, Property.RECEIVE_MAXIMUM: 10} if version == 5 else {}
    return encode_packet(
        Connect(
            client_id=f"mutant-{number % 100}",
            keep_alive=60,
            username="user",
            password=b"secret",
            will=Will(topic="m/will", payload=b"gone", qos=1),
            properties=properties,
            protocol_level=version,
        ),
        version,
    )


SEEDS: Final = {
    version: [encode_packet(packet, version) for packet in _packets(version)]
    + [case.data for case in CASES if case.version == version and case.stage == "connected"]
    for version in (4, 5)
}


def mutate(data: bytes, random: Random) -> bytes:
    """One to four small changes."""
    mutant = bytearray(data)
    for _ in range(random.randint(1, 4)):
        where = random.randrange(len(mutant) + 1)
        match random.randrange(7):
            case 0 if where < len(mutant):
                mutant[where] ^= 1 << random.randrange(8)
            case 1 if where < len(mutant):
                mutant[where] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 2:
                mutant[where:where] = random.randbytes(random.randint(1, 8))
            case 3:
                del mutant[where : where + random.randint(1, 8)]
            case 4:
                end = where + random.randint(1, 32)
                mutant[where:where] = mutant[where:end]
            case 5 if len(mutant) > 1:  # a Remaining Length that lies
                mutant[1] = (mutant[1] + random.randint(-3, 3)) % 256
            case _:
                mutant[where:where] = random.choice(SEEDS[random.choice((4, 5))])
    return bytes(mutant)


def streams(count: int, random: Random) -> Iterator[bytes]:
    """What each connection sends: a mutated CONNECT, or a right one and mutated packets behind it."""
    for number in range(count):
        version = random.choice((4, 5))
        opening = connect(version, number)
        if number % 4 == 0:
            yield mutate(opening, random) + random.choice(SEEDS[version])
        else:
            yield opening + mutate(random.choice(SEEDS[version]), random)


def send_all(port: int, source: Iterator[bytes]) -> list[bytes]:
    """Send every stream on a connection of its own; gives those whose connection the server left hanging."""
    hanging: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        opened: dict[socket.socket, tuple[bytes, float]] = {}

        def end(connection: socket.socket) -> None:
            selector.unregister(connection)
            connection.close()
            del opened[connection]

        exhausted = False
        while opened or not exhausted:
            while len(opened) < CROWD and not exhausted:
                stream = next(source, None)
                if stream is None:
                    exhausted = True
                    break
                connection = _open(port, stream)
                opened[connection] = (stream, time.monotonic() + PATIENCE)
                selector.register(connection, selectors.EVENT_READ)
            for key, _ in selector.select(timeout=0.1):
                connection = key.fileobj  # type: ignore[assignment]
                if not _read(connection):
                    end(connection)
            now = time.monotonic()
            for connection, (stream, deadline) in list(opened.items()):
                if deadline > now:
                    break  # in order of opening
                hanging.append(stream)
                end(connection)
    return hanging


def _open(port: int, stream: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    try:
        connection.sendall(stream)
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:  # the server may have closed already
        if error.errno not in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN}:
            raise
    connection.setblocking(False)
    return connection


def _read(connection: socket.socket) -> bool:
    """Read once; false at the end of the connection."""
    try:
        return bool(connection.recv(65536))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
