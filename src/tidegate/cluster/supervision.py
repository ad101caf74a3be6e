"""Nodes of a local cluster that end by themselves are started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidegate.cluster.local import START_SECONDS, NodeProcess

MAX_FALLS = 5  # within
WINDOW = 60.0  # seconds: a node that falls more often is left
PAUSE = 0.2  # seconds before the first new start; twice as long after each fall within the window


@dataclass
class _Care:
    node: NodeProcess
    falls: list[float] = field(default_factory=list)
    ending: str = ""  # how it ended, until it serves again
    due: float | None = None  # when it is launched again
    deadline: float = 0.0  # until then it has to serve
    is_left: bool = False


class Supervisor:
    """Looks after nodes; `say` is told in one line what happened to one."""

    def __init__(
        self, nodes: Iterable[NodeProcess], say: Callable[[str], None], *, restarts: bool = True
    ) -> None:
        self._cares = [_Care(node) for node in nodes]
        self._say = say
        self._restarts = restarts

    @property
    def is_over(self) -> bool:
        """No node runs, and none will."""
        return all(care.is_left for care in self._cares)

    def look(self) -> None:
        """To be called a few times a second; never waits."""
        now = time.monotonic()
        for care in self._cares:
            if not care.is_left:
                self._look_at(care, now)

    def _look_at(self, care: _Care, now: float) -> None:
        node = care.node
        if care.due is not None:
            if now >= care.due:
                care.due, care.deadline = None, now + START_SECONDS
                node.launch()
        elif not node.is_running:
            self._fell(care, now)
        elif care.ending and node.is_ready():
            self._say(f"{node.name} {care.ending}, started again: pid {node.pid}")
            care.ending = ""
        elif care.ending and now > care.deadline:
            node.kill()

    def _fell(self, care: _Care, now: float) -> None:
        care.ending = care.node.ending
        care.falls = [at for at in care.falls if now - at < WINDOW] + [now]
        if not self._restarts or care.node.is_refused:
            self._leave(care, "")
        elif len(care.falls) > MAX_FALLS:
            self._leave(care, f" after {MAX_FALLS} new starts within {WINDOW:g} s")
        else:
            care.due = now + PAUSE * 2 ** (len(care.falls) - 1)

    def _leave(self, care: _Care, why: str) -> None:
        care.is_left = True
        self._say(f"{care.node.name} {care.ending}, not started again{why}")
