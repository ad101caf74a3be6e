"""The cluster as its head tells it below `$SYS/cluster/`: nodes, drains, plans, and what happened of late. Pure.

A head has one retained document a node, an edge the same in one document called `nodes`. What a node does not tell
(utilisation, budgets, the phase of a balancing) is left out on the page.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

EVENTS: Final = 200
MAX_NODES: Final = 1_000
_KINDS: Final = ("plan", "drain")


class ClusterView:
    """The latest of everything below `$SYS/cluster/`."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, dict[str, Any]] = {}
        self.drains: dict[str, dict[str, Any]] = {}
        self.balance: dict[str, Any] = {}
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)

    def clear(self) -> None:
        self.nodes, self.plans, self.drains, self.balance = {}, {}, {}, {}

    def take(self, topic: str, payload: bytes, now: float) -> None:
        """One message; what is not understood is left out."""
        name = topic.removeprefix("$SYS/cluster/")
        try:
            value = json.loads(payload)
        except ValueError:
            return
        if not isinstance(value, dict):
            return
        kind, _, node = name.partition("/")
        if kind == "nodes" and not node:
            for each, state in value.items():
                if isinstance(state, dict):
                    self._take_node(str(each), state, now)
        elif kind in _KINDS and node:
            self._take_operation(kind, node, value, now)
        elif kind == "balance" and not node:
            self._take_balance(value, now)
        elif kind == "moves" and not node:
            self._say(now, "move", _move_text(value))
        elif not node:
            self._take_node(name, value, now)

    def _take_node(self, name: str, state: dict[str, Any], now: float) -> None:
        before = self.nodes.get(name)
        if before is None and len(self.nodes) >= MAX_NODES:
            return
        self.nodes[name] = state
        if before is None:
            self._say(now, "join", f"{name} is part of the cluster")
            return
        if before.get("linked") is not state.get("linked"):
            self._say(now, "link", f"{name} is {'linked again' if state.get('linked') else 'not reachable'}")
        if before.get("load") != state.get("load"):
            self._say(now, "load", f"{name}: load {before.get('load')} to {state.get('load')}")

    def _take_operation(self, kind: str, node: str, value: dict[str, Any], now: float) -> None:
        table = self.plans if kind == "plan" else self.drains
        before = table.get(node, {})
        table[node] = value
        if kind == "drain":
            moved = int(value.get("moved") or 0) - int(before.get("moved") or 0)
            if before.get("state") != value.get("state"):
                self._say(now, "drain", f"drain of {node}: {value.get('state')}")
            elif moved > 0:
                self._say(now, "move", f"{moved} more clients moved away from {node}")

    def _take_balance(self, value: dict[str, Any], now: float) -> None:
        if self.balance.get("step") != value.get("step") and value.get("step"):
            self._say(now, "phase", f"balancing: {value['step']}")
        self.balance = value

    def _say(self, now: float, kind: str, text: str) -> None:
        self.events.appendleft({"at": round(now, 3), "kind": kind, "text": text})

    def as_object(self) -> dict[str, Any]:
        return {
            "nodes": [{"name": name} | state for name, state in sorted(self.nodes.items())],
            "plans": self.plans,
            "drains": self.drains,
            "balance": self.balance,
            "events": list(self.events)[:50],
        }


def _move_text(value: dict[str, Any]) -> str:
    count = value.get("clients", 1)
    return f"{count} clients of {value.get('topic', 'any topic')}: {value.get('source')} to {value.get('target')}"
