"""Who publishes to whom: publishers, subscribers and the window that they share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tidegate.load.clients import Client
from tidegate.load.packets import Burst
from tidegate.load.settings import Mode, Settings
from tidegate.load.streams import PublisherStream, SubscriberStream


class Publisher:
    """A client that sends bursts and knows how much the broker still has to acknowledge."""

    __slots__ = ("burst", "client", "inflight", "sent", "stream")

    def __init__(self, settings: Settings, topic: str, client_id: str) -> None:
        self.stream = PublisherStream(qos=settings.qos)
        self.client = Client(client_id, self.stream)
        self.burst = Burst(
            topic,
            payload_bytes=settings.payload_bytes,
            qos=settings.qos,
            protocol=settings.protocol,
            size=settings.batch,
        )
        self.inflight = settings.inflight
        self.sent = 0

    def room(self, credit: int) -> int:
        """Return how many messages may be sent now, at most `credit`."""
        if self.client.pending:
            return 0
        if self.burst.qos:
            # The broker's Receive Maximum binds too [MQTT5-3.3.4-7].
            limit = min(self.inflight, self.client.receive_maximum)
            credit = min(credit, limit - (self.sent - self.stream.acknowledged))
        return min(credit, self.burst.size)

    def send(self, count: int) -> None:
        """Send the next `count` messages with one call."""
        self.client.write(self.burst.fill(count, self.sent, time.monotonic_ns()))
        self.sent += count


@dataclass(kw_only=True, slots=True)
class Flow:
    """Publishers and the subscribers that get their messages, under one window.

    `copies` is how many subscribers get each message: all of them, or one of a shared-subscription group.
    """

    publishers: list[Publisher]
    subscribers: list[Client]
    streams: list[SubscriberStream]
    window: int
    batch: int
    copies: int
    _next: int = field(default=0)
    _written_off: int = field(default=0)

    @property
    def sent(self) -> int:
        return sum(publisher.sent for publisher in self.publishers)

    @property
    def received(self) -> int:
        return sum(stream.received for stream in self.streams)

    @property
    def missing(self) -> int:
        """Return how many deliveries are still to come."""
        return self.sent * self.copies - self.received

    @property
    def outstanding(self) -> int:
        """Return how many messages are on their way; of several subscribers the slowest one rules."""
        passed = [stream.passed for stream in self.streams]
        return self.sent - (sum(passed) if self.copies == 1 else min(passed))

    def write_off(self) -> None:
        """Take what is on its way for lost, so that a broker which drops does not bring the run to a halt.

        It changes what may be sent, not what is counted in the end.
        """
        self._written_off = self.outstanding

    def send(self) -> int:
        """Send what window and acknowledgements allow, each publisher at most one burst; return the count."""
        credit = self.window - self.outstanding + self._written_off
        publishers = self.publishers
        total = 0
        for step in range(len(publishers)):
            if credit < self.batch:
                break
            publisher = publishers[(self._next + step) % len(publishers)]
            count = publisher.room(credit)
            # A quarter of what can be in flight, so that a broker that acknowledges one by one does not make
            # every burst a single packet; a publisher at QoS 0 always sends whole batches.
            if count >= self._least(publisher):
                publisher.send(count)
                credit -= count
                total += count
        self._next = (self._next + 1) % len(publishers)
        return total

    def _least(self, publisher: Publisher) -> int:
        if not publisher.burst.qos:
            return self.batch
        return max(1, min(publisher.inflight, publisher.client.receive_maximum, self.batch) // 4)


def make_flows(settings: Settings) -> list[Flow]:
    """Return the flows of a mode, not connected yet. Topics have one width, so all packets have one size."""
    prefix, mode, tag = settings.topic_prefix, settings.mode, settings.name
    publishers = [
        Publisher(settings, f"{prefix}/{index:04d}", f"tb-{tag}-p{index:04d}")
        for index in range(settings.publishers)
    ]
    if mode in (Mode.PAIRS, Mode.TRICKLE):
        filters = [f"{prefix}/{index:04d}" for index in range(settings.subscribers)]
    elif mode is Mode.FANOUT:
        filters = [f"{prefix}/0000"] * settings.subscribers
    elif mode is Mode.SHARED:
        filters = [f"$share/tidebench/{prefix}/+"] * settings.subscribers
    else:
        filters = [f"{prefix}/+"]
    streams = [
        SubscriberStream(
            payload_bytes=settings.payload_bytes, is_ordered=mode not in (Mode.FANIN, Mode.SHARED)
        )
        for _ in filters
    ]
    subscribers = [
        Client(
            f"tb-{tag}-s{index:04d}",
            stream,
            topic_filter=topic_filter,
            qos=settings.qos,
            persistent=settings.persistent,
        )
        for index, (stream, topic_filter) in enumerate(zip(streams, filters, strict=True))
    ]
    if mode in (Mode.PAIRS, Mode.TRICKLE):
        return [
            Flow(
                publishers=[publisher],
                subscribers=[subscriber],
                streams=[stream],
                window=settings.window,
                batch=settings.batch,
                copies=1,
            )
            for publisher, subscriber, stream in zip(publishers, subscribers, streams, strict=True)
        ]
    return [
        Flow(
            publishers=publishers,
            subscribers=subscribers,
            streams=streams,
            window=settings.window * len(publishers),
            batch=settings.batch,
            copies=len(subscribers) if mode is Mode.FANOUT else 1,
        )
    ]
