"""The modes about connections rather than messages: memory of idle ones, and many held for a while."""

from __future__ import annotations

import struct
import time

from tidegate.load import packets
from tidegate.load.clients import Client
from tidegate.load.engine import Engine, Meter, Progress
from tidegate.load.result import Result
from tidegate.load.settings import Settings
from tidegate.load.streams import PublisherStream, SubscriberStream
from tidegate.load.usage import memory

# Pings and messages are due in a steady stream; they are sent in steps of this many seconds.
_STEP = 0.005
# The last message leaves at this share of the hold, so that the rest shows that all stay connected.
_LAST_MESSAGE = 0.8
_HEAD = struct.Struct(">BQH")


def _members(settings: Settings, streams: list[SubscriberStream]) -> list[Client]:
    """Return one client for each stream, with a topic of its own."""
    return [
        Client(
            f"tb-{settings.name}-m{index:06d}",
            stream,
            topic_filter=f"{settings.topic_prefix}/{index:06d}",
            qos=settings.qos,
        )
        for index, stream in enumerate(streams)
    ]


def run_idle(settings: Settings, engine: Engine, result: Result, progress: Progress | None) -> None:
    """Open connections with a subscription each, leave them alone, and see how the broker's memory grew."""
    assert settings.pid is not None  # settings were checked
    streams = [SubscriberStream(payload_bytes=settings.payload_bytes) for _ in range(settings.subscribers)]
    clients = _members(settings, streams)
    # The first client makes the broker load and allocate what is not a connection's doing.
    engine.open(clients[:1])
    before = memory(settings.pid)
    started = time.monotonic()
    engine.open(clients[1:], progress)
    count = max(1, len(clients) - 1)
    result.connects_per_second = count / (time.monotonic() - started)
    meter = Meter(settings, streams)
    end = time.monotonic() + settings.seconds
    while (left := end - time.monotonic()) > 0:
        engine.turn(left)
    meter.stop(result)
    after = memory(settings.pid)
    result.rss_before_bytes = before.rss_bytes
    result.rss_after_bytes = after.rss_bytes
    result.rss_bytes_per_connection = (after.rss_bytes - before.rss_bytes) / count
    result.pss_bytes_per_connection = (after.pss_bytes - before.pss_bytes) / count


def run_hold(settings: Settings, engine: Engine, result: Result, progress: Progress | None) -> None:
    """Hold connections with keep-alive traffic, send each one message, and count: none may get lost."""
    streams = [
        SubscriberStream(payload_bytes=settings.payload_bytes, is_ordered=False)
        for _ in range(settings.subscribers)
    ]
    clients = _members(settings, streams)
    sender = PublisherStream(qos=settings.qos)
    publisher = Client(f"{clients[0].client_id}-pub", sender)
    started = time.monotonic()
    engine.open([*clients, publisher], progress)
    result.connects_per_second = len(clients) / (time.monotonic() - started)
    engine.lost = []
    meter = Meter(settings, streams)
    meter.start()
    hold = _Hold(settings, clients, publisher)
    now = started = time.monotonic()
    while now < started + settings.seconds:
        hold.send_due(now - started)
        engine.turn(_STEP)
        now = time.monotonic()
    hold.send_rest()
    last = now
    while hold.is_waiting and now - last < settings.quiet:
        if engine.turn(_STEP):
            last = time.monotonic()
        now = time.monotonic()
    meter.stop(result)
    result.sent = result.expected = hold.sent
    result.received = sum(stream.received for stream in streams)
    result.drops = sum(1 for stream in streams if not stream.received)
    result.repeats = sum(stream.received - 1 for stream in streams if stream.received)
    result.refused = sender.refused
    result.disconnects = len(engine.lost)
    result.pings = sum(stream.pings for stream in streams)
    result.unanswered_pings = hold.pings - result.pings


class _Hold:
    """Sends the pings and the messages of a hold when they are due."""

    def __init__(self, settings: Settings, clients: list[Client], publisher: Client) -> None:
        self._settings = settings
        self._clients = clients
        self._publisher = publisher
        # Each client pings twice within its keep-alive, one client after the other.
        self._pings_per_second = len(clients) * 2 / settings.keep_alive if settings.keep_alive else 0.0
        self._messages_per_second = len(clients) / (settings.seconds * _LAST_MESSAGE)
        self.pings = 0
        self.sent = 0

    def send_due(self, elapsed: float) -> None:
        count = len(self._clients)
        while self.pings < int(elapsed * self._pings_per_second):
            client = self._clients[self.pings % count]
            self.pings += 1
            if client.is_open:
                client.write(packets.PINGREQ_PACKET)
        while self.sent < min(count, int(elapsed * self._messages_per_second)):
            self._send_message()

    def send_rest(self) -> None:
        while self.sent < len(self._clients):
            self._send_message()

    def _send_message(self) -> None:
        settings = self._settings
        head = _HEAD.pack(1, time.monotonic_ns(), self.sent & 0xFFFF)
        self._publisher.write(
            packets.publish(
                f"{settings.topic_prefix}/{self.sent:06d}",
                head + bytes(settings.payload_bytes - len(head)),
                qos=settings.qos,
                protocol=settings.protocol,
                packet_identifier=self.sent % 65535 + 1,
            )
        )
        self.sent += 1

    @property
    def is_waiting(self) -> bool:
        """Say whether messages or answers to pings are still to come from clients that are there."""
        streams = [client.stream for client in self._clients if client.is_open]
        return any(isinstance(stream, SubscriberStream) and not stream.received for stream in streams) or (
            sum(stream.pings for stream in streams if isinstance(stream, SubscriberStream)) < self.pings
        )
