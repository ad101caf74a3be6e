"""Who gets a topic: the subscription index and the routes derived from it.

Theory of operation. Filters without wildcards live in a flat dictionary, filters with wildcards in a tree of
levels (`tree.py`); most deployments have many of the first and few of the second. Publishing never touches either:
it looks up a `Route`, the ready answer for one topic, in `routes`. A change to an exact filter drops the one
route it concerns; a change to a wildcard filter empties the cache and bumps `epoch`, which tells connections
with a cache of their own (those whose rights differ) to empty theirs.

A session with several matching subscriptions gets one copy at the highest granted QoS, with all their
subscription identifiers [MQTT5-3.3.4-2] [MQTT5-3.3.4-3].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

from tidegate.broker.hooks import NODE_TOPIC
from tidegate.broker.long_work import STEP
from tidegate.broker.shared import SharedGroup
from tidegate.broker.tree import PAUSE, LevelTree, has_wildcard
from tidegate.flow import load_report

if TYPE_CHECKING:
    from tidegate.broker.connection import Connection
    from tidegate.broker.long_work import Job
    from tidegate.broker.session import Session

K = TypeVar("K")
MAX_ROUTES = 65_536
MAX_CACHED_TOPIC = 512  # bytes; longer topics are looked up each time
UNCACHED = (b"$SYS", NODE_TOPIC)
LOAD_TOPIC = load_report.LOAD_TOPIC.encode()
SOON = 1_000  # units of work for a search before others have their turn
RIGHTS_COST = 5  # units of work to ask whether a session may receive a topic


class Subscription:
    """One topic filter of one session, with its options. `share` names the group, empty for none."""

    __slots__ = (
        "identifier", "no_local", "qos", "retain_as_published", "session", "share", "tag", "topic_filter"
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        topic_filter: bytes,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifier: int = 0,
        share: str = "",
    ) -> None:
        self.session = session
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier
        self.share = share
        self.tag: tuple[int, ...] = ()  # of a member of a group: see `shared.Tag`

    @property
    def is_in_force(self) -> bool:
        """Whether its session still has it."""
        name = self.topic_filter
        if self.share:
            name = b"$share/%b/%b" % (self.share.encode(), name)
        return self.session.subscriptions.get(name) is self


class Target:
    """A session that gets a topic, with all its matching subscriptions merged."""

    __slots__ = ("identifiers", "is_plain", "qos", "retain_as_published", "session", "subscriptions")

    def __init__(self, session: Session, subscriptions: tuple[Subscription, ...]) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self.qos = max(s.qos for s in subscriptions)
        self.retain_as_published = any(s.retain_as_published for s in subscriptions)
        self.identifiers = tuple(s.identifier for s in subscriptions if s.identifier)
        self.is_plain = (
            not self.identifiers and session.is_plain and not any(s.no_local for s in subscriptions)
        )


class Route:
    """The ready answer for one topic.

    plain4, plain5: sessions that take the shared QoS 0 packet of their protocol version as it is.
    special: targets that need something of their own (subscription identifiers, no local, topic alias, packet
    size limit). fast4, fast5: all recipients, if every one of them takes the bytes of a QoS 0 publisher of that
    version as they came; else None. exact4, exact5: by QoS, all recipients if every one of them takes that QoS
    from a publisher of that version with nothing but the packet identifier changed; else None. groups4, groups5:
    the shared groups, if there are no other recipients and every member takes QoS 0 as it came; else None.
    far: groups for which another node chooses; who it chose there is one of these.
    cost: of handing on one message, in units of work.
    """

    __slots__ = (
        "cost", "exact4", "exact5", "far", "fast4", "fast5", "groups4", "groups5", "plain4", "plain5", "shared",
        "special", "targets", "topic",
    )  # fmt: skip

    is_internal: ClassVar = False  # the message is for the broker itself

    def __init__(
        self,
        targets: list[Target],
        shared: tuple[SharedGroup, ...],
        topic: bytes = b"",
        far: tuple[SharedGroup, ...] = (),
    ) -> None:
        self.topic = topic
        self.far = far
        self.targets = tuple(targets)
        self.shared = shared
        self.plain4 = tuple(t.session for t in targets if t.is_plain and t.session.version != 5)
        self.plain5 = tuple(t.session for t in targets if t.is_plain and t.session.version == 5)
        self.special = tuple(t for t in targets if not t.is_plain)
        self.cost = len(targets) + len(shared) + sum(len(t.subscriptions) for t in self.special)
        simple = not self.special and not shared
        self.fast4: tuple[Session, ...] | None = self.plain4 if simple and not self.plain5 else None
        self.fast5: tuple[Session, ...] | None = self.plain5 if simple and not self.plain4 else None
        # A durable session must write what it gets: that is the general path's work.
        granted = 0 if any(t.session.durable for t in targets) else min((t.qos for t in targets), default=0)
        self.exact4 = (None, self.fast4 if granted >= 1 else None, self.fast4 if granted >= 2 else None)
        self.exact5 = (None, self.fast5 if granted >= 1 else None, self.fast5 if granted >= 2 else None)
        only_shared = shared and not targets
        members = [member for group in shared for member in group.members]
        is_plain = all(m.session.is_plain and not m.identifier for m in members)
        self.groups4 = (
            shared if only_shared and is_plain and all(m.session.version != 5 for m in members) else None
        )
        self.groups5 = (
            shared if only_shared and is_plain and all(m.session.version == 5 for m in members) else None
        )


Entry: TypeAlias = "Subscription | dict[tuple[Session, str], Subscription]"
"""What a filter has: one subscription as it is, as a dictionary for each of 1 000 000 filters would cost 232 bytes."""


class Search:
    """Finds who gets a topic, a part at a time; publishers that cannot go on without it wait for it.

    A subscription that is new since the search began is found or not: it came after the message. A route that may have
    missed one is not kept.
    """

    __slots__ = ("_changes", "_found", "_groups", "_index", "_targets", "cost", "route", "topic", "waiters")

    def __init__(self, index: SubscriptionIndex, topic: bytes) -> None:
        self.topic = topic
        self.route: Route | None = None
        self.cost = 0
        self.waiters: dict[Connection, None] | None = None
        self._index = index
        self._changes = index.changes
        self._found = index.match(topic)
        self._targets: dict[Session, list[Subscription]] = {}
        self._groups: dict[SharedGroup, list[Subscription]] = {}

    @property
    def is_current(self) -> bool:
        """Whether nothing changed since it began."""
        return self._index.changes == self._changes

    def finish(self) -> Route:
        if self.route is None:
            self.go_on()
        assert self.route is not None
        return self.route

    def rest(self) -> Job:
        while self.route is None:
            before = self.cost
            self.go_on(STEP)
            yield self.cost - before

    def go_on(self, most: float = inf) -> None:
        """Look for so many units of work; `route` is there when all is found."""
        index, topic = self._index, self.topic
        may_receive = index.may_receive
        limit = self.cost + most
        for subscription in self._found:
            if subscription is None:
                self.cost += PAUSE
                if self.cost >= limit:
                    return
                continue
            self.cost += 1
            if may_receive is not None:
                self.cost += RIGHTS_COST
                if not may_receive(subscription.session, topic):
                    continue
            if not subscription.share:
                self._targets.setdefault(subscription.session, []).append(subscription)
            else:
                group = index.groups.get((subscription.share, subscription.topic_filter))
                if group is not None:  # it may have lost its last member in a pause
                    self._groups.setdefault(group, []).append(subscription)
        self._make_route()

    def _make_route(self) -> None:
        if not self.is_current:
            self._targets = _in_force(self._targets)
            self._groups = _in_force(self._groups)
        targets = [Target(session, tuple(found)) for session, found in self._targets.items()]
        # A group of which only some may receive this topic is cut down to those, for this route.
        groups = tuple(
            group if len(members) == len(group.members) else group.restricted(members)
            for group, members in self._groups.items()
        )
        if self._index.has_far_groups:
            self.route = Route(targets, (), self.topic, far=groups)
        else:
            self.route = Route(targets, groups, self.topic)
        if self.is_current:
            self._index.keep(self.route)


def _in_force(found: dict[K, list[Subscription]]) -> dict[K, list[Subscription]]:
    left = ((key, [each for each in subscriptions if each.is_in_force]) for key, subscriptions in found.items())
    return {key: subscriptions for key, subscriptions in left if subscriptions}


class SubscriptionIndex:
    """All subscriptions of the node. `may_receive(session, topic)` removes recipients without the right."""

    __slots__ = (
        "_exact",
        "_tree",
        "changes",
        "count",
        "epoch",
        "groups",
        "has_far_groups",
        "make_group",
        "may_receive",
        "on_change",
        "routes",
        "shared_count",
    )

    def __init__(self, make_group: Callable[[str, bytes], SharedGroup]) -> None:
        self._exact: dict[bytes, Entry] = {}
        self._tree: LevelTree[Entry] = LevelTree()
        self.groups: dict[tuple[str, bytes], SharedGroup] = {}
        self.make_group = make_group
        self.has_far_groups = False  # another node chooses the members of groups: no route has any
        self.on_change: Callable[[Subscription, bool], None] | None = None  # added or removed
        self.may_receive: Callable[[Session, bytes], bool] | None = None
        self.routes: dict[bytes, Route] = {}
        self.epoch = 0
        self.changes = 0  # of subscriptions, and of what rests on them
        self.count = 0
        self.shared_count = 0

    # -- changing -------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription) -> bool:
        """Add or replace; True if it is new for its session."""
        topic_filter = subscription.topic_filter
        is_wildcard = has_wildcard(topic_filter)
        entry = self._tree.get(topic_filter) if is_wildcard else self._exact.get(topic_filter)
        is_new = True
        if entry is None:
            entry = subscription
        elif isinstance(entry, Subscription):
            if (entry.session, entry.share) == (subscription.session, subscription.share):
                is_new = False
                entry = subscription
            else:
                entry = {(each.session, each.share): each for each in (entry, subscription)}
        else:
            size = len(entry)
            entry[subscription.session, subscription.share] = subscription
            is_new = len(entry) > size
        if is_wildcard:
            self._tree.put(topic_filter, entry)
        else:
            self._exact[topic_filter] = entry
        if subscription.share:
            group_key = (subscription.share, topic_filter)
            group = self.groups.get(group_key)
            if group is None:
                group = self.groups[group_key] = self.make_group(subscription.share, topic_filter)
            group.add(subscription)
            self.shared_count += is_new
        self.count += is_new
        self.invalidate(topic_filter)
        if is_new and self.on_change is not None:
            self.on_change(subscription, True)
        return is_new

    def remove(self, subscription: Subscription) -> None:
        """Remove one, if it is there."""
        topic_filter = subscription.topic_filter
        is_wildcard = has_wildcard(topic_filter)
        entry = self._tree.get(topic_filter) if is_wildcard else self._exact.get(topic_filter)
        if isinstance(entry, dict):
            key = (subscription.session, subscription.share)
            if entry.get(key) is not subscription:
                return
            del entry[key]
        elif entry is not subscription:
            return
        if not isinstance(entry, dict) or not entry:
            if is_wildcard:
                self._tree.remove(topic_filter)
            else:
                del self._exact[topic_filter]
        if subscription.share:
            group = self.groups[subscription.share, topic_filter]
            group.remove(subscription)
            if not group.members:
                del self.groups[subscription.share, topic_filter]
            self.shared_count -= 1
        self.count -= 1
        self.invalidate(topic_filter)
        if self.on_change is not None:
            self.on_change(subscription, False)

    def invalidate(self, topic_filter: bytes) -> None:
        """Forget the routes a filter takes part in."""
        if has_wildcard(topic_filter):
            self.forget_routes()
        else:
            self.changes += 1
            route = self.routes.pop(topic_filter, None)
            if route is not None:
                self.epoch += 1

    def forget_routes(self) -> None:
        self.changes += 1
        self.routes.clear()
        self.epoch += 1

    # -- asking ---------------------------------------------------------------------------------------------

    def route(self, topic: bytes) -> Route:
        """The route of a valid topic name; from the cache, or made now."""
        return self.routes.get(topic) or Search(self, topic).finish()

    def search(self, topic: bytes) -> Search:
        """The same in parts: what is found soon has its route."""
        search = Search(self, topic)
        search.route = self.routes.get(topic)
        if search.route is None:
            search.go_on(SOON)
        return search

    def keep(self, route: Route) -> None:
        """Put a new route into the cache, which is bounded, if it may be there.

        A cached route would let clients publish to $SYS, hand on reports and what is for nodes.
        """
        topic = route.topic
        if not topic.startswith(UNCACHED) and len(topic) <= MAX_CACHED_TOPIC:
            if len(self.routes) >= MAX_ROUTES:
                self.forget_routes()
            self.routes[topic] = route

    def match(self, topic: bytes) -> Iterator[Subscription | None]:
        """Every subscription whose filter matches the topic name, and None where the search may pause."""
        entry = self._exact.get(topic)
        if entry is not None:
            yield from _each(entry)
        if self._tree.count:
            for found in self._tree.matching(topic):
                if isinstance(found, dict):
                    yield from _each(found)
                else:
                    yield found


def _each(entry: Entry) -> Iterator[Subscription | None]:
    if isinstance(entry, Subscription):
        yield entry
        return
    for number, subscription in enumerate(list(entry.values())):
        if number % PAUSE == PAUSE - 1:
            yield None
        yield subscription
