"""The management agent of an edge: what its topics ask of its uplink, as the detector's samples.

Counting costs an observer on every message, so it is attached only if the capacity of the uplink was given, or when
there is evidence (`capacity.py`) that the uplink, the downlink or the processor is too small, and for a while after.
What waits for a client is in four places: its queue, packets that wait for its socket, the transport's buffer and the
kernel's. The first two hold messages, the others bytes, which are turned into messages of the size that the topic has.
"""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from tidegate.cluster.capacity import MatchingProbe, UplinkProbe
from tidegate.flow.balance import Bundle, Edge, EdgeDetector, Path, QueueSample, edge_budget
from tidegate.flow.balance.predictors import LastValue
from tidegate.mqtt.properties import Property
from tidegate.mqtt.topics import matches, parse_shared

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.core import Core
    from tidegate.broker.message import Message
    from tidegate.broker.session import Session
    from tidegate.mqtt.packets import Subscribe

MBIT: Final = 1e6
UNKNOWN: Final = 1e12  # bit/s that stand for a capacity that is not known: nothing fills it
WATCHED: Final = 0.8  # share of the processor from which messages are counted, and
WATCHED_SECONDS: Final = 60.0  # for how long after
MAX_TOPICS: Final = 1_000  # topics of one interval that are told apart; the rest is counted together
OTHERS: Final = b"..."
SAMPLED: Final = 32  # clients whose round-trip time is looked at
BUDGET_PROPERTY: Final = "tidegate-budget"
"""User Property on SUBSCRIBE: seconds that messages of its filters may take from publisher to subscriber."""
NOMINAL_RATE: Final = 1.0  # messages a second that a subscriber counts for where nothing is measured
NOMINAL_BYTES: Final = 100.0


class EdgeAgent:
    """Counts messages by topic (a `PublishObserver`), and makes the view of this edge every interval."""

    def __init__(
        self,
        core: Core,
        name: str,
        *,
        uplink: float,
        downlink: float,
        budget: float,
        budgets: dict[str, float],
    ) -> None:
        self._core = core
        self._budget = budget
        self._budgets = budgets
        self._counts: dict[bytes, list[float]] = {}  # topic: messages, bytes
        self.asked: dict[str, float] = {}
        self._unwanted: set[str] = set()
        self.link_delay = 0.0  # seconds from the head to here, and
        self.publisher_delay = 0.0  # from the slowest publisher to the head
        self._depths: dict[str, float] = {}
        self._sizes: dict[str, float] = {}
        self._is_given = bool(uplink)
        self._counts_until = inf if uplink else 0.0
        self.probe = UplinkProbe()
        self.matching = MatchingProbe()
        self._detector = EdgeDetector(
            name,
            uplink=uplink * MBIT or UNKNOWN,
            downlink=(downlink or uplink) * MBIT or UNKNOWN,
            predictor=LastValue,
        )
        if self._is_given:
            self._core.publish_observers = (*self._core.publish_observers, self)

    # -- whether to count -----------------------------------------------------------------------------------

    @property
    def is_counting(self) -> bool:
        return self in self._core.publish_observers

    def count_for_a_while(self) -> None:
        """Something is too small, or may be."""
        self._counts_until = max(self._counts_until, self._core.now() + WATCHED_SECONDS)

    def look(self, interval: float) -> None:
        """Once an interval: measure what is not given, and count only while that may matter."""
        self.matching.look()
        core = self._core
        if not self._is_given:
            self.probe.look(core, interval)
            self._detector.uplink = self.probe.capacity or UNKNOWN
        if self.probe.capacity or self.matching.share >= WATCHED:
            self.count_for_a_while()
        is_wanted = core.now() < self._counts_until
        if is_wanted and not self.is_counting:
            core.publish_observers = (*core.publish_observers, self)
        elif not is_wanted and self.is_counting:
            core.publish_observers = tuple(each for each in core.publish_observers if each is not self)
            self._counts.clear()
            self._depths.clear()
            self._sizes.clear()

    # -- counting -------------------------------------------------------------------------------------------

    def on_run(self, client: Connection, packets: bytes, count: int) -> None:
        body = 2
        while packets[body - 1] > 127:
            body += 1
        end = body + 2 + (packets[body] << 8 | packets[body + 1])
        self._count(packets[body + 2 : end], count, len(packets))

    def on_message(self, client: Connection, message: Message) -> None:
        self._count(message.topic, 1, len(message.payload) + len(message.topic) + 5)

    def _count(self, topic: bytes, count: int, size: int) -> None:
        entry = self._counts.get(topic)
        if entry is None:
            if len(self._counts) >= MAX_TOPICS:
                topic = OTHERS
            entry = self._counts.setdefault(topic, [0.0, 0.0])
        entry[0] += count
        entry[1] += size

    # -- looking --------------------------------------------------------------------------------------------

    def view(self, interval: float) -> Edge:
        """The edge as it is now, and forget what was counted."""
        counts, self._counts = self._counts, {}
        topics = {topic.decode(errors="replace"): entry for topic, entry in counts.items() if topic != OTHERS}
        # A topic that has paused, and still waits somewhere, is looked at as well.
        for topic in self._depths:
            topics.setdefault(topic, [0.0, 0.0])
        depths = self._waiting(list(topics))
        samples = []
        for topic, (count, size) in topics.items():
            subscribers = len(self._subscribers(topic))
            depth = depths.get(topic, 0.0)
            if not subscribers and not depth:
                continue
            size_bytes = size / count if count else self._sizes.get(topic, NOMINAL_BYTES)
            self._sizes.pop(topic, None)
            self._sizes[topic] = size_bytes  # the latest is the last
            arrived = count * subscribers
            departed = max(0.0, arrived - (depth - self._depths.get(topic, 0.0)))
            samples.append(
                QueueSample(
                    topic=topic, subscribers=subscribers, size_bytes=size_bytes, budget=self.budget(topic),
                    arrived=arrived, departed=departed, depth=depth,
                )
            )  # fmt: skip
        self._depths = {topic: depth for topic, depth in depths.items() if depth}
        while len(self._sizes) > MAX_TOPICS:
            del self._sizes[next(iter(self._sizes))]
        view = self._detector.view(samples, interval)
        view.matching = self.matching.learn(view.incoming)
        return view

    def statistics(self) -> dict[str, Any]:
        """What was measured; 0: not known."""
        rate = self.matching.rate
        return {
            "is_counting": self.is_counting,
            "uplink": 0.0 if self._detector.uplink == UNKNOWN else self._detector.uplink,
            "matching": 0.0 if rate == inf else rate,
            "processor": self.matching.share,
        }

    def required(self, topic: str) -> float:
        """Seconds a message may take: the shortest that a client asked for, else by the first setting that matches."""
        asked = [seconds for each, seconds in self.asked.items() if matches(each, topic)]
        if asked:
            return min(asked)
        for topic_filter, seconds in self._budgets.items():
            if matches(topic_filter, topic):
                return seconds
        return self._budget

    def waiting_budget(self, topic_filter: str) -> float:
        """How long messages of a filter may wait here, less the way from the publisher to here."""
        return max(0.0, self.required(topic_filter) - self.publisher_delay - self.link_delay)

    def ask(self, topic_filter: str, seconds: float) -> None:
        """A subscriber said how long messages of this filter may take; the shortest of several counts."""
        shared = parse_shared(topic_filter)
        topic_filter = shared[1] if shared else topic_filter
        if topic_filter in self.asked or len(self.asked) < MAX_TOPICS:
            self.asked[topic_filter] = min(seconds, self.asked.get(topic_filter, seconds))

    def forget_unwanted(self, filters: Iterable[bytes]) -> None:
        """Once an interval: what was asked for filters that nobody has in two looks in a row counts no longer."""
        if not self.asked:
            return
        unwanted = self.asked.keys() - {each.decode(errors="replace") for each in filters}
        for topic_filter in unwanted & self._unwanted:
            del self.asked[topic_filter]
        self._unwanted = unwanted

    def budget(self, topic: str) -> float:
        """How long a message may wait here: what is required, less the way there and on, as TCP measured it."""
        slowest = max(
            (
                session.conn.round_trip()
                for session in self._subscribers(topic)[:SAMPLED]
                if session.conn is not None
            ),
            default=0.0,
        )
        path = Path(
            publisher_to_head=self.publisher_delay,
            head_to_edge=self.link_delay,
            edge_to_subscriber=slowest / 2,
        )
        return edge_budget(self.required(topic), path)

    def _subscribers(self, topic: str) -> list[Session]:
        route = self._core.index.route(topic.encode())
        return [t.session for t in route.targets if not t.session.is_link]

    def _waiting(self, topics: list[str]) -> dict[str, float]:
        """Messages that wait, by topic."""
        depths: dict[str, float] = {}
        by_session: dict[Session, list[str]] = {}
        for topic in topics:
            for session in self._subscribers(topic):
                by_session.setdefault(session, []).append(topic)
        for session, wanted in by_session.items():
            for delivery in session.pending or ():
                name = delivery[0].topic.decode(errors="replace")
                depths[name] = depths.get(name, 0.0) + 1
            unsent = session.backlog_bytes + _unsent_bytes(session)
            if unsent:
                share = unsent / len(wanted)
                for topic in wanted:
                    depths[topic] = depths.get(topic, 0.0) + share / self._sizes.get(topic, NOMINAL_BYTES)
        # Less than one message for each subscriber is what is being sent, not what waits.
        return {topic: depth for topic, depth in depths.items() if depth > 2 * len(self._subscribers(topic))}


def _unsent_bytes(session: Session) -> int:
    """In the transport, and in the kernel's buffer (SIOCOUTQ)."""
    conn = session.conn
    if conn is None:
        return 0
    size = conn.transport.get_write_buffer_size()
    sock = conn.transport.get_extra_info("socket")
    if sock is None:
        return size
    try:
        answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:
        return size
    return size + int(struct.unpack("i", answer)[0])


def asked_budget(packet: Subscribe) -> float | None:
    """The seconds that a subscriber asks for."""
    for name, value in packet.properties.get(Property.USER_PROPERTY, ()):
        if name == BUDGET_PROPERTY:
            try:
                seconds = float(value)
            except ValueError:
                continue
            if 0.0 < seconds < inf:
                return seconds
    return None


def is_budget_nonsense(packet: Subscribe) -> bool:
    """Whether a subscriber says something about its budget, and no number of seconds over 0."""
    names = (name for name, _ in packet.properties.get(Property.USER_PROPERTY, ()))
    return BUDGET_PROPERTY in names and asked_budget(packet) is None


def plain(view: Edge) -> dict[str, Any]:
    """A view for the wire."""
    return {
        "uplink": view.uplink,
        "downlink": view.downlink,
        "matching": None if view.matching == inf else view.matching,
        "bundles": [
            [b.topic, b.subscribers, b.size_bytes, b.budget, b.arriving, b.leaving, b.depth]
            for b in view.bundles.values()
        ],
    }


def edge_of(name: str, value: dict[str, Any], *, is_locked: bool = False) -> Edge:
    """A view from the wire."""
    bundles = {}
    for topic, subscribers, size_bytes, budget, arriving, leaving, depth in value.get("bundles", ()):
        bundles[topic] = Bundle(
            topic=topic, subscribers=subscribers, size_bytes=size_bytes, budget=budget, arriving=arriving,
            leaving=leaving, depth=depth,
        )  # fmt: skip
    uplink = value.get("uplink") or UNKNOWN
    return Edge(
        name=name,
        uplink=uplink,
        downlink=value.get("downlink") or uplink,
        matching=value.get("matching") or inf,
        bundles=bundles,
        is_locked=is_locked,
    )
