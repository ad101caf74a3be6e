"""Who gets a topic: the subscription index and the routes derived from it.

Theory of operation. Filters without wildcards live in a flat dictionary, filters with wildcards in a tree of
levels; most deployments have many of the first and few of the second. Publishing never touches either:
it looks up a `Route`, the ready answer for one topic, in `routes`. A change to an exact filter drops the one
route it concerns; a change to a wildcard filter empties the cache and bumps `epoch`, which tells connections
with a cache of their own (those whose rights differ) to empty theirs.

A session with several matching subscriptions gets one copy at the highest granted QoS, with all their
subscription identifiers [MQTT5-3.3.4-2] [MQTT5-3.3.4-3].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidegate.broker.shared import SharedGroup
from tidegate.flow import load_report

if TYPE_CHECKING:
    from tidegate.broker.session import Session

MAX_ROUTES = 65_536
MAX_CACHED_TOPIC = 512  # bytes; longer topics are looked up each time
LOAD_TOPIC = load_report.LOAD_TOPIC.encode()
PLUS = b"+"
HASH = b"#"


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
    """

    __slots__ = (
        "exact4", "exact5", "fast4", "fast5", "groups4", "groups5", "plain4", "plain5", "shared", "special", "targets",
        "topic",
    )  # fmt: skip

    def __init__(self, targets: list[Target], shared: tuple[SharedGroup, ...], topic: bytes = b"") -> None:
        self.topic = topic
        self.targets = tuple(targets)
        self.shared = shared
        self.plain4 = tuple(t.session for t in targets if t.is_plain and t.session.version != 5)
        self.plain5 = tuple(t.session for t in targets if t.is_plain and t.session.version == 5)
        self.special = tuple(t for t in targets if not t.is_plain)
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


class _Level:
    """A node of the wildcard tree."""

    __slots__ = ("children", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[bytes, _Level] = {}
        self.subscriptions: dict[tuple[Session, str], Subscription] = {}


def has_wildcard(topic_filter: bytes) -> bool:
    return PLUS in topic_filter or HASH in topic_filter


class SubscriptionIndex:
    """All subscriptions of the node. `may_receive(session, topic)` removes recipients without the right."""

    __slots__ = (
        "_exact",
        "_tree",
        "count",
        "epoch",
        "groups",
        "make_group",
        "may_receive",
        "routes",
        "shared_count",
    )

    def __init__(self, make_group: Callable[[str, bytes], SharedGroup]) -> None:
        # A single subscription is stored bare: a dictionary for each of 1 000 000 topics would cost 232 bytes.
        self._exact: dict[bytes, Subscription | dict[tuple[Session, str], Subscription]] = {}
        self._tree = _Level()
        self.groups: dict[tuple[str, bytes], SharedGroup] = {}
        self.make_group = make_group
        self.may_receive: Callable[[Session, bytes], bool] | None = None
        self.routes: dict[bytes, Route] = {}
        self.epoch = 0
        self.count = 0
        self.shared_count = 0

    # -- changing -------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription) -> bool:
        """Add or replace; True if it is new for its session."""
        key = (subscription.session, subscription.share)
        topic_filter = subscription.topic_filter
        if has_wildcard(topic_filter):
            level = self._tree
            for name in topic_filter.split(b"/"):
                child = level.children.get(name)
                if child is None:
                    child = level.children[name] = _Level()
                level = child
            is_new = key not in level.subscriptions
            level.subscriptions[key] = subscription
        else:
            is_new = self._add_exact(key, subscription)
        if subscription.share:
            group_key = (subscription.share, topic_filter)
            group = self.groups.get(group_key)
            if group is None:
                group = self.groups[group_key] = self.make_group(subscription.share, topic_filter)
            group.add(subscription)
            self.shared_count += is_new
        self.count += is_new
        self.invalidate(topic_filter)
        return is_new

    def _add_exact(self, key: tuple[Session, str], subscription: Subscription) -> bool:
        entry = self._exact.get(subscription.topic_filter)
        if entry is None:
            self._exact[subscription.topic_filter] = subscription
            return True
        if isinstance(entry, Subscription):
            if (entry.session, entry.share) == key:
                self._exact[subscription.topic_filter] = subscription
                return False
            entry = self._exact[subscription.topic_filter] = {(entry.session, entry.share): entry}
        is_new = key not in entry
        entry[key] = subscription
        return is_new

    def remove(self, subscription: Subscription) -> None:
        """Remove one that was added; cost grows with the levels of its filter."""
        key = (subscription.session, subscription.share)
        topic_filter = subscription.topic_filter
        if has_wildcard(topic_filter):
            self._remove_wildcard(key, topic_filter.split(b"/"))
        else:
            entry = self._exact[topic_filter]
            if isinstance(entry, Subscription):
                del self._exact[topic_filter]
            else:
                del entry[key]
                if not entry:
                    del self._exact[topic_filter]
        if subscription.share:
            group = self.groups[subscription.share, topic_filter]
            group.remove(subscription)
            if not group.members:
                del self.groups[subscription.share, topic_filter]
            self.shared_count -= 1
        self.count -= 1
        self.invalidate(topic_filter)

    def _remove_wildcard(self, key: tuple[Session, str], names: list[bytes]) -> None:
        path = [self._tree]
        for name in names:
            path.append(path[-1].children[name])
        del path[-1].subscriptions[key]
        for depth in range(len(names), 0, -1):
            level = path[depth]
            if level.subscriptions or level.children:
                break
            del path[depth - 1].children[names[depth - 1]]

    def invalidate(self, topic_filter: bytes) -> None:
        """Forget the routes a filter takes part in."""
        if has_wildcard(topic_filter):
            self.forget_routes()
        else:
            route = self.routes.pop(topic_filter, None)
            if route is not None:
                self.epoch += 1

    def forget_routes(self) -> None:
        self.routes.clear()
        self.epoch += 1

    # -- asking ---------------------------------------------------------------------------------------------

    def route(self, topic: bytes) -> Route:
        """The route of a valid topic name; from the cache, or made now."""
        route = self.routes.get(topic)
        if route is None:
            # A cached route would let clients publish to $SYS, and hand on reports; and the cache is bounded.
            if topic.startswith(b"$SYS") or topic == LOAD_TOPIC or len(topic) > MAX_CACHED_TOPIC:
                return self._make_route(topic)
            if len(self.routes) >= MAX_ROUTES:
                self.forget_routes()
            route = self.routes[topic] = self._make_route(topic)
        return route

    def _make_route(self, topic: bytes) -> Route:
        by_session: dict[Session, list[Subscription]] = {}
        groups: dict[SharedGroup, list[Subscription]] = {}
        for subscription in self.match(topic):
            if self.may_receive is not None and not self.may_receive(subscription.session, topic):
                continue
            if subscription.share:
                group = self.groups[subscription.share, subscription.topic_filter]
                groups.setdefault(group, []).append(subscription)
            else:
                by_session.setdefault(subscription.session, []).append(subscription)
        targets = [Target(session, tuple(found)) for session, found in by_session.items()]
        # A group of which only some may receive this topic is cut down to those, for this route.
        shared = (
            group if len(members) == len(group.members) else group.restricted(members)
            for group, members in groups.items()
        )
        return Route(targets, tuple(shared), topic)

    def match(self, topic: bytes) -> Iterator[Subscription]:
        """Every subscription whose filter matches the topic name."""
        entry = self._exact.get(topic)
        if isinstance(entry, Subscription):
            yield entry
        elif entry is not None:
            yield from entry.values()
        tree = self._tree
        if not tree.children:
            return
        names = topic.split(b"/")
        last = len(names)
        # [MQTT5-4.7.2-1] [MQTT3-4.7.2-1]: no wildcard in the first level matches a topic that begins with $.
        is_hidden = topic.startswith(b"$")
        stack = [(tree, 0)]
        while stack:
            level, depth = stack.pop()
            children = level.children
            if not (is_hidden and depth == 0):
                tail = children.get(HASH)
                if tail is not None:
                    yield from tail.subscriptions.values()
                if depth < last:
                    child = children.get(PLUS)
                    if child is not None:
                        stack.append((child, depth + 1))
            if depth == last:
                yield from level.subscriptions.values()
            else:
                child = children.get(names[depth])
                if child is not None:
                    stack.append((child, depth + 1))
