"""The cluster as its head tells it below `$SYS/cluster/`: nodes, drains, plans, and what happened of late. Pure.

A head has one retained document a node, and `balancing` with the step of the phase that runs, the phases of late, and
how full the edges are; an edge has what its head told it, in one document called `nodes`. An empty document says that
the node is no longer part of the cluster. What is not told is left out.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

from tidegate.console.values import objects

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
        # Of the connection before: what is told again on the next one is no news.
        self._past_nodes: dict[str, dict[str, Any]] = {}
        self._past_drains: dict[str, dict[str, Any]] = {}
        self._past_balance: dict[str, Any] = {}

    def clear(self) -> None:
        """The connection is another one: everything that still holds is told again."""
        self._past_nodes = self.nodes or self._past_nodes
        self._past_drains = self.drains or self._past_drains
        self._past_balance = self.balance or self._past_balance
        self.nodes, self.plans, self.drains, self.balance = {}, {}, {}, {}

    def take(self, topic: str, payload: bytes, now: float) -> None:
        """One message; what is not understood is left out."""
        name = topic.removeprefix("$SYS/cluster/")
        kind, _, node = name.partition("/")
        if not payload:
            self._forget(kind, node, now)
            return
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        if kind == "nodes" and not node:
            self._take_nodes({str(each): state for each, state in value.items() if isinstance(state, dict)}, now)
        elif kind in _KINDS and node:
            self._take_operation(kind, node, value, now)
        elif kind == "balancing" and not node:
            self._take_balance(value, now)
        elif not node:
            self._take_node(name, value, now)

    def _forget(self, kind: str, node: str, now: float) -> None:
        if kind in _KINDS and node:
            (self.plans if kind == "plan" else self.drains).pop(node, None)
        elif kind == "balancing":
            self.balance = {}
        elif not node:
            self._leave(kind, now)

    def _leave(self, name: str, now: float) -> None:
        for table in (self.plans, self.drains, self._past_nodes, self._past_drains):
            table.pop(name, None)
        if self.nodes.pop(name, None) is not None:
            self._say(now, "leave", f"{name} has left the cluster")

    def _take_nodes(self, states: dict[str, dict[str, Any]], now: float) -> None:
        """All there are: whoever is not among them has left."""
        for name in [name for name in self.nodes if name not in states]:
            self._leave(name, now)
        for name, state in states.items():
            self._take_node(name, state, now)

    def _take_node(self, name: str, state: dict[str, Any], now: float) -> None:
        before = self.nodes.get(name) or self._past_nodes.pop(name, None)
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
            before = before or self._past_drains.pop(node, {})
            moved = int(value.get("moved") or 0) - int(before.get("moved") or 0)
            if moved > 0:
                total = f" of {value['total']}" if value.get("total") else ""
                self._say(now, f"drain {node}", f"{node}: {value.get('moved')}{total} clients moved away")
            if before.get("state") != value.get("state"):
                self._say(now, "drain", f"drain of {node}: {value.get('state')}")

    def _take_balance(self, value: dict[str, Any], now: float) -> None:
        before = self.balance or self._past_balance
        self.balance, self._past_balance = value, {}
        if before.get("step") != value.get("step") and value.get("step") not in (None, "idle"):
            self._say(now, "phase", f"balancing: {value['step']}")
        known = {phase.get("number") for phase in objects(before.get("phases"))}
        for phase in objects(value.get("phases")):
            if before and phase.get("number") not in known:
                for text in _moves(phase):
                    self._say(
                        now, "move", f"{phase.get('edge')} is in trouble ({phase.get('metric')}): {text}"
                    )

    def _say(self, now: float, kind: str, text: str) -> None:
        """Progress of one thing is one line that changes, not one a step."""
        latest = self.events[0] if self.events else {}
        if kind.startswith("drain ") and latest.get("kind") == kind:
            self.events.popleft()
        self.events.appendleft({"at": round(now, 3), "kind": kind, "text": text})

    def as_object(self) -> dict[str, Any]:
        return {
            "nodes": [
                {"name": name} | state | self._edge(name) for name, state in sorted(self.nodes.items())
            ],
            "plans": self.plans,
            "drains": self.drains,
            "balance": {
                "policy": self.balance.get("policy"),
                "step": self.balance.get("step"),
                "phases": [
                    {
                        name: phase.get(name)
                        for name in ("number", "edge", "metric", "at", "is_over", "is_timed_out")
                    }
                    | {"moves": _moves(phase)}
                    for phase in objects(self.balance.get("phases"))[-10:]
                ],
            },
            "events": list(self.events)[:50],
        }

    def _edge(self, name: str) -> dict[str, Any]:
        """How full an edge is, if the head tells."""
        edges = self.balance.get("edges")
        found = edges.get(name) if isinstance(edges, dict) else None
        if not isinstance(found, dict):
            return {}
        return {
            "utilisation": found.get("uplink"),
            "state": found.get("state"),
            "waiting": found.get("waiting"),
            "budgets": objects(found.get("budgets")),
        }


def _moves(phase: dict[str, Any]) -> list[str]:
    """The plan of a phase, in words."""
    moves = phase.get("moves")
    return [
        f"{move[1]} clients of {move[0]} from {move[2]} to {move[3]}"
        for move in (moves if isinstance(moves, list) else ())
        if isinstance(move, list) and len(move) == 4
    ]
