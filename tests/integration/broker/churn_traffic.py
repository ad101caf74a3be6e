"""Clients that come and go in every way there is, as fast as a few threads can play them.

Each act is the whole life of one or two clients and cleans up what outlives it (retained messages); sessions
end by themselves a second later. The order is random but seeded, so a run can be repeated.
"""

import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

from tidegate.mqtt import Connect, Property, Publish, Subscribe, Subscription, Will, encode_packet
from tidegate.testing.raw import RawClient

PREFIX = "churn"
EXPIRY = 1  # seconds a session outlives its connection
KEEP_ALIVE = 2
LARGE = bytes(200_000)

Act = Callable[[int, Random, str], None]


def _properties(version: int, expiry: int = EXPIRY) -> dict[Property, int]:
    return {Property.SESSION_EXPIRY_INTERVAL: expiry} if version == 5 else {}


def polite(port: int, random: Random, name: str) -> None:
    """Connects, subscribes in three ways, hears itself at every QoS, unsubscribes some and disconnects."""
    version = random.choice((4, 5))
    with RawClient(port, version) as client:
        client.connect(name, keep_alive=KEEP_ALIVE)
        client.subscribe(f"{PREFIX}/{name}/exact", qos=2)
        client.subscribe(f"{PREFIX}/{name}/+/deep/#", qos=1)
        client.subscribe(f"$share/{name}/{PREFIX}/{name}/shared", qos=1)
        for qos in (0, 1, 2):
            client.publish(f"{PREFIX}/{name}/exact", b"x", qos)
            client.acknowledge(client.take(Publish))
        client.publish(f"{PREFIX}/{name}/very/deep/down", b"x", 1)
        client.publish(f"{PREFIX}/{name}/shared", b"x", 1)
        if random.random() < 0.5:
            client.unsubscribe(f"{PREFIX}/{name}/exact", f"$share/{name}/{PREFIX}/{name}/shared")
        if random.random() < 0.5:
            client.disconnect()


def forgetful(port: int, random: Random, name: str) -> None:
    """Leaves a session with unacknowledged and queued messages of all kinds; may come back for them."""
    properties = _properties(5)
    with RawClient(port) as client:
        client.connect(
            name,
            keep_alive=KEEP_ALIVE,
            clean_start=False,
            properties=properties | {Property.RECEIVE_MAXIMUM: 3},
        )
        client.subscribe(f"{PREFIX}/{name}/#", qos=2)
        for number in range(6):
            client.publish(f"{PREFIX}/{name}/own", str(number).encode(), 1 + number % 2)
        # QoS 2 that is never released
        client.send(Publish(topic=f"{PREFIX}/{name}/half", payload=b"x", qos=2, packet_identifier=999))
        client.barrier()
    with RawClient(port) as sender:
        sender.connect(f"{name}-sender", keep_alive=KEEP_ALIVE)
        for number in range(5):
            sender.publish(f"{PREFIX}/{name}/away", b"x" * 100, 1 + number % 2)
    if random.random() < 0.5:
        with RawClient(port) as client:
            client.connect(
                name, keep_alive=KEEP_ALIVE, clean_start=random.random() < 0.3, properties=properties
            )
            client.barrier()


def mourned(port: int, random: Random, name: str) -> None:
    """Ends without DISCONNECT and leaves a will, at once or delayed, sometimes retained and then cleared."""
    topic = f"{PREFIX}/{name}/will"
    delay = random.choice((0, 0, EXPIRY))
    with RawClient(port) as watcher:
        watcher.connect(f"{name}-watcher", keep_alive=KEEP_ALIVE)
        watcher.subscribe(topic, qos=1)
        will = Will(
            topic=topic,
            payload=b"gone",
            qos=random.choice((0, 1)),
            retain=random.random() < 0.5,
            properties={Property.WILL_DELAY_INTERVAL: delay} if delay else {},
        )
        with RawClient(port) as client:
            client.connect(name, keep_alive=KEEP_ALIVE, will=will, properties=_properties(5))
        if delay and random.random() < 0.5:  # back in time: the will is not due
            with RawClient(port) as client:
                client.connect(name, clean_start=False, keep_alive=KEEP_ALIVE, properties=_properties(5, 0))
                client.disconnect()
            return
        watcher.acknowledge(watcher.take(Publish))
        watcher.publish(topic, b"", 1, retain=True)


def retaining(port: int, random: Random, name: str) -> None:
    """Sets, replaces and clears retained messages, some of which expire."""
    with RawClient(port) as client:
        client.connect(name, keep_alive=KEEP_ALIVE)
        topics = [f"{PREFIX}/{name}/{level}/kept" for level in range(random.randint(1, 5))]
        for topic in topics:
            client.publish(topic, b"first", 1, retain=True)
            client.publish(topic, b"second", 1, retain=True, properties={Property.MESSAGE_EXPIRY_INTERVAL: 5})
        client.subscribe(f"{PREFIX}/{name}/+/kept", qos=1)
        for topic in topics:
            client.publish(topic, b"", 1, retain=True)
        client.disconnect()


def taken_over(port: int, random: Random, name: str) -> None:
    """Two connections with one name; the first has something in flight."""
    version = random.choice((4, 5))
    with RawClient(port, version) as first, RawClient(port, version) as second:
        first.connect(
            name,
            keep_alive=KEEP_ALIVE,
            properties=_properties(version),
            will=Will(topic=f"{PREFIX}/{name}", payload=b"x"),
        )
        first.subscribe(f"{PREFIX}/{name}/x", qos=2)
        first.send(Publish(topic=f"{PREFIX}/{name}/x", payload=b"x", qos=2, packet_identifier=1))
        second.connect(
            name, keep_alive=KEEP_ALIVE, clean_start=random.random() < 0.5, properties=_properties(version)
        )
        first.expect_closed()
        second.barrier()


def broken(port: int, random: Random, name: str) -> None:
    """Ends in the middle of something: before, inside or after CONNECT, with half a packet or with nonsense."""
    connect = encode_packet(
        Connect(client_id=name, clean_start=True, keep_alive=KEEP_ALIVE, protocol_level=5), 5
    )
    with RawClient(port) as client:
        match random.randrange(5):
            case 0:
                pass
            case 1:
                client.send_bytes(connect[: random.randrange(1, len(connect))])
            case 2:
                client.send_bytes(connect[:1] + b"\xff\xff\xff\xff\xff")
                client.expect_closed()
            case 3:
                client.connect(name, keep_alive=KEEP_ALIVE)
                client.send_bytes(b"\x30\xf0\x7f\x00")
            case _:
                client.connect(name, keep_alive=KEEP_ALIVE)
                client.send_bytes(b"\xf7\x00 nonsense")
                client.expect_closed()


def deaf(port: int, random: Random, name: str) -> None:
    """Subscribes, does not read, and is gone while megabytes wait for it."""
    with RawClient(port) as client, RawClient(port) as sender:
        client.connect(name, keep_alive=0)
        client.subscribe(f"{PREFIX}/{name}/#", qos=random.choice((0, 1)))
        sender.connect(f"{name}-sender", keep_alive=KEEP_ALIVE)
        for _ in range(40):
            sender.publish(f"{PREFIX}/{name}/flood", LARGE, 1)


def _hear_oneself(send: Callable[[bytes], object], receive: Callable[[], bytes], name: str) -> None:
    """A short life over a stream of another kind."""
    topic = f"{PREFIX}/{name}/echo"
    subscribe = Subscribe(packet_identifier=1, subscriptions=[Subscription(topic_filter=topic, qos=0)])
    send(
        encode_packet(Connect(client_id=name, clean_start=True, keep_alive=KEEP_ALIVE, protocol_level=5), 5)
        + encode_packet(subscribe, 5)
        + encode_packet(Publish(topic=topic, payload=b"-- echo --", qos=0), 5)
    )
    heard = b""
    while b"-- echo --" not in heard:
        data = receive()
        assert data, "closed before the echo"
        heard += data


def over_websocket(port: int, random: Random, name: str) -> None:
    """A WebSocket client; half of them leave without the closing handshake."""
    link = connect_websocket(
        f"ws://127.0.0.1:{port}/mqtt",
        subprotocols=[Subprotocol("mqtt")],
        compression=None,
        proxy=None,
        close_timeout=5,
    )
    with link:
        _hear_oneself(link.send, lambda: bytes(link.recv(5, decode=False)), name)
        if random.random() < 0.5:
            link.socket.shutdown(socket.SHUT_RDWR)


def over_tls(port: int, random: Random, name: str) -> None:
    """A TLS client; half of them leave without closing TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what is tested here is the end of it
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        if random.random() < 0.2:
            plain.sendall(b"\x16\x03\x01")  # and never says more
            return
        with context.wrap_socket(plain) as wrapped:
            _hear_oneself(wrapped.sendall, lambda: wrapped.recv(65_536), name)
            if random.random() < 0.5:
                wrapped.unwrap()


# How often each is played, and by which listener it comes in.
ACTS: tuple[tuple[Act, str, int], ...] = (
    (polite, "tcp", 25),
    (forgetful, "tcp", 20),
    (mourned, "tcp", 6),
    (retaining, "tcp", 15),
    (taken_over, "tcp", 15),
    (broken, "tcp", 25),
    (deaf, "tcp", 1),
    (over_websocket, "ws", 6),
    (over_tls, "tls", 6),
)


def churn(ports: dict[str, int], seconds: float, *, seed: int = 0, threads: int = 8) -> Counter[str]:
    """Play acts for this long on every thread; how often each was played. The first failure is raised."""
    acts = [(act, ports[name], weight) for act, name, weight in ACTS if name in ports]
    weights = [weight for _, _, weight in acts]
    end = time.monotonic() + seconds

    def play(number: int) -> Counter[str]:
        random = Random(f"{seed}-{number}")
        played: Counter[str] = Counter()
        while time.monotonic() < end:
            turn = played.total()
            # Every act at least once, whatever the dice say.
            act, port, _ = acts[turn] if turn < len(acts) else random.choices(acts, weights)[0]
            act(port, random, f"c{seed}-{number}-{turn}")
            played[act.__name__] += 1
        return played

    with ThreadPoolExecutor(threads, thread_name_prefix="churn") as pool:
        return sum(pool.map(play, range(threads)), Counter())
