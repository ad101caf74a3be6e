"""What pages follow live: a state a channel, as JSON, made at most once for all browsers that look at it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from tidegate.console import feed as topics
from tidegate.console.explain import last_choice, notes
from tidegate.console.settings import ConsoleSettings
from tidegate.console.watch import NodeWatch

FRESH: Final = 0.25  # seconds that a state is good for
CHANNELS: Final = ("overview", "publishers", "groups", "cluster", "rpc", "policy")
STALE: Final = 5.0  # seconds without a pulse that are worth a word


class Channels:
    """States by name."""

    def __init__(self, settings: ConsoleSettings, watch: NodeWatch) -> None:
        self._settings = settings
        self._watch = watch
        self._made: dict[str, tuple[float, str]] = {}
        self._makers: dict[str, Callable[[], dict[str, Any]]] = {
            "node": self.node,
            "overview": self.overview,
            "publishers": self.publishers,
            "groups": self.groups,
            "cluster": self.cluster,
            "rpc": self.rpc,
            "policy": self.policy,
        }

    def text(self, name: str) -> str:
        now = time.monotonic()
        made_at, text = self._made.get(name, (0.0, ""))
        if now - made_at > FRESH:
            text = json.dumps(self._makers[name](), separators=(",", ":"))
            self._made[name] = (now, text)
        return text

    def node(self) -> dict[str, Any]:
        """What every page shows at its top."""
        watch = self._watch
        feed = watch.feed
        # By our own clock: that of the node's machine may be another one.
        heard_at = watch.pulse_at or watch.began_at
        is_stale = watch.is_connected and heard_at < time.monotonic() - STALE
        problem = watch.problem
        if not problem and watch.is_connected and watch.refused:
            problem = f"no right to read {', '.join(watch.refused[:3])}"
        return {
            "is_connected": watch.is_connected,
            "problem": problem,
            "is_stale": is_stale,
            "is_silent": is_stale and not watch.pulse_at,
            "since": self._since(is_stale=is_stale),
            "address": watch.address,
            "name": feed.values.get(topics.NODE, ""),
            "version": feed.values.get(topics.VERSION, ""),
            "state": feed.load.get("state", "") if watch.is_connected else "",
            "is_cluster": bool(watch.cluster.nodes),
        }

    def _since(self, *, is_stale: bool) -> float | None:
        """From when on what pages show of the node is the past; None: it is the present. Seconds of the wall clock."""
        watch = self._watch
        if not watch.is_connected:
            return round(watch.lost_at or time.time(), 3)
        if is_stale and watch.pulse_at:
            return round(watch.pulse_wall, 3)
        return None

    def overview(self) -> dict[str, Any]:
        watch = self._watch
        watch.ask("reports")
        states = watch.pulse.get("states")
        return {
            "pulse": watch.pulse,
            "point": watch.history.latest,
            "latency": watch.latency.summary(time.perf_counter()),
            "notes": notes(watch.feed, states if isinstance(states, dict) else {}),
            "queues": [asdict(queue) for queue in watch.feed.queues[:10]],
            "queues_total": watch.feed.total(topics.QUEUES),
            "accounts": [asdict(account) for account in watch.feed.accounts[:8]],
            "accounts_total": watch.feed.total(topics.ACCOUNTS),
            "top": [asdict(row) for row in watch.feed.publishers[:8]],
            "publishers_total": watch.feed.total(topics.PUBLISHERS),
        }

    def publishers(self) -> dict[str, Any]:
        """Only that there is something new: a browser then asks for the rows it shows."""
        self._watch.ask("publishers")
        return {"version": self._watch.table.version}

    def groups(self) -> dict[str, Any]:
        self._watch.ask("reports")
        feed = self._watch.feed
        return {
            "at": feed.documents.get(topics.GROUPS, {}).get("at"),
            "total": feed.total(topics.GROUPS),
            "groups": [asdict(group) | {"why": last_choice(group)} for group in feed.groups],
        }

    def cluster(self) -> dict[str, Any]:
        return self._watch.cluster.as_object()

    def rpc(self) -> dict[str, Any]:
        self._watch.ask("rpc")
        return self._watch.rpc.as_object(time.time())

    def policy(self) -> dict[str, Any]:
        return {"in_force": self._watch.policy_version}
