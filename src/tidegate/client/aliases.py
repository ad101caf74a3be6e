"""Topic Aliases of one connection (MQTT 5 section 3.3.2.3.4), a table for each direction.

Both are empty when a connection begins [MQTT5-3.3.2-7].
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from tidegate.mqtt.errors import Blame, TopicAliasInvalid
from tidegate.mqtt.packets import Publish
from tidegate.mqtt.properties import Property


class OutgoingAliases:
    """Gives topics their aliases, the least recently used one losing its own when all are taken.

    `wanted` 0 leaves the choice to the caller: a message that names an alias has it sent, and its topic only
    while the server does not know it yet.
    """

    def __init__(self, wanted: int, allowed: int) -> None:
        self._allowed = allowed
        self._limit = min(wanted, allowed)
        self._is_automatic = wanted > 0
        self._alias_of: OrderedDict[str, int] = OrderedDict()
        self._topic_of: dict[int, str] = {}

    def apply(self, packet: Publish) -> Publish:
        """The packet to encode; the argument itself if no alias is involved."""
        alias: int | None = packet.properties.get(Property.TOPIC_ALIAS)
        if alias is not None:
            return self._apply_given(packet, alias)
        if not self._limit:
            return packet
        topic = packet.topic
        alias = self._alias_of.get(topic)
        if alias is not None:
            self._alias_of.move_to_end(topic)
            return replace(packet, topic="", properties={**packet.properties, Property.TOPIC_ALIAS: alias})
        if len(self._alias_of) < self._limit:
            alias = len(self._alias_of) + 1
        else:
            _, alias = self._alias_of.popitem(last=False)
        self._alias_of[topic] = alias
        return replace(packet, properties={**packet.properties, Property.TOPIC_ALIAS: alias})

    def reset(self) -> None:
        """A packet could not be sent, so the server may not know what we noted: it learns all anew."""
        self._alias_of.clear()
        self._topic_of.clear()

    def _apply_given(self, packet: Publish, alias: int) -> Publish:
        if self._is_automatic:
            raise TopicAliasInvalid(
                "aliases are chosen by the client here; set topic_aliases to 0 to choose", blame=Blame.LOCAL
            )
        if not 1 <= alias <= self._allowed:
            # [MQTT5-3.3.2-9]
            raise TopicAliasInvalid(
                f"the server takes Topic Aliases up to {self._allowed}, not {alias}", blame=Blame.LOCAL
            )
        if self._topic_of.get(alias) == packet.topic:
            return replace(packet, topic="")
        self._topic_of[alias] = packet.topic
        return packet


class IncomingAliases:
    """Remembers the aliases the server set."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, packet: Publish) -> str:
        """The topic of a PUBLISH; raises `TopicAliasInvalid` [MQTT5-3.1.2-26]."""
        alias: int | None = packet.properties.get(Property.TOPIC_ALIAS)
        if alias is None:
            return packet.topic
        if alias > self._maximum:
            raise TopicAliasInvalid(f"Topic Alias {alias} is above our maximum {self._maximum}")
        if packet.topic:
            self._topics[alias] = packet.topic
            return packet.topic
        topic = self._topics.get(alias)
        if topic is None:
            raise TopicAliasInvalid(f"Topic Alias {alias} was never set")
        return topic
