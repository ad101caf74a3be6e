"""Sessions move between nodes: nothing lost, nothing doubled, in order.

Theory of operation. The head is where all messages between nodes pass, so it is where a session's stream is cut. A move
from edge A to edge B takes two steps, each ordered by messages in the links, which keep their order:

1. **To the head.** A *freezes* the session (its subscriptions leave A's index, its client is not read), says `frozen`,
   and goes on to collect for it what the head had sent before. The head takes `frozen` as the moment: from then on it
   collects for the session itself, and says `cut`. What A got before `cut` and what the head got after `frozen` is
   everything, each once: what A's own clients published before `frozen` A has delivered, what they published after
   it comes to the head behind it. A sends what it has (`tail`); the head puts it before what it collected.
2. **To B.** The head sends what there is (`install`), takes the session out of its index and subscribes B's link to
   the session's filters, all in one turn: what comes later goes to B behind `install`. Only what B's own clients had
   sent before B knew is still missing: the head collects that until B says `installed`, and sends it on (`append`).

Then A is told to `release` the client: it is disconnected with 0x9C and the address of B. A client that comes to a
node by itself *claims* its session there, which is the same without the release. Messages are QoS 1 in persistent link
sessions; leaving a session and putting it into a link is one commit, so a crash finds it in exactly one place. What a
node must know to go on after a crash is kept as retained messages below `$tide/move/`, which no wildcard of a client
reaches, and in sessions whose identifiers begin with `$`: they are in the store with everything else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from tidegate.broker.index import Subscription, Target
from tidegate.broker.session import Session
from tidegate.cluster import transfer, wire
from tidegate.cluster.edge_moves import EdgeMoves
from tidegate.cluster.head_moves import AT_TARGET, HeadMoves, Moving
from tidegate.cluster.moves import MOVING, RECORD, TAIL
from tidegate.cluster.settings import Role
from tidegate.mqtt.topics import matches

log = logging.getLogger("tidegate.cluster")


class Handover(HeadMoves, EdgeMoves):
    """The part of a node that moves sessions. Each node has both ends and uses those of its role."""

    def targets(self, link: Session, topic: str) -> list[Target]:
        """Sessions on their way that get what comes by this link: at A from the head, at the head from B."""
        found = []
        for session, subscriptions in self._collecting(link):
            plain = tuple(
                each
                for each in subscriptions
                if not each.share and matches(each.topic_filter.decode(), topic)
            )
            if plain:
                found.append(Target(session, plain))
        return found

    def _collecting(self, link: Session) -> Iterator[tuple[Session, Iterable[Subscription]]]:
        if self._node.role is Role.EDGE:
            for session in self._frozen.values():
                yield session, session.subscriptions.values()
            for (
                client,
                parked,
            ) in self._parked.items():  # its parts are read from disk: what comes is behind them
                tail = self._node.core.sessions.get(TAIL + client)
                if tail is not None:
                    yield tail, transfer.subscriptions_of(tail, parked["about"]["subscriptions"]).values()
            return
        for move in self.moving.values():
            if move.step in AT_TARGET and move.session is not None and self._link(move.target) is link:
                yield move.session, move.session.subscriptions.values()

    def restored(self) -> None:
        """Go on where the node was when it went down; link sessions have what was said and not heard."""
        for message in list(self._node.core.retained.match(RECORD + b"#")):
            client = message.topic[len(RECORD) :].decode()
            try:
                self._restore(client, json.loads(message.payload))
            except (ValueError, KeyError, TypeError):
                log.exception("record of a move makes no sense", extra={"client": client})

    def _restore(self, client: str, value: dict[str, Any]) -> None:
        core = self._node.core
        if value["step"] == "parked":
            self._parked[client] = {
                "step": "parked",
                "about": value["about"],
                "inbound": value["inbound"],
            }
            return
        if value["step"] in ("frozen", "cut"):
            session = core.sessions.get(client)
            if session is not None:
                self._hush(session)
                (self._frozen if value["step"] == "frozen" else self._cut)[client] = session
            return
        move = Moving(
            client=client,
            source=value["source"],
            target=value["target"],
            address=value["address"],
            step=value["step"],
            about=value["about"],
            inbound=value["inbound"],
            newer=value.get("newer", ""),
            is_cut_short=bool(value.get("is_cut_short")),
            since=core.now(),
            session=core.sessions.get(MOVING + client),
        )
        if move.step in AT_TARGET:
            link = wire.client_id(Role.EDGE, move.target)
            keys = [(link, name.encode()) for name, *_ in move.about["subscriptions"]]
            if move.session is not None:
                for subscription in move.session.subscriptions.values():
                    core.index.remove(subscription)
            for key in keys:
                self._pledged[key] = self._pledged.get(key, 0) + 1
        self.moving[client] = move
