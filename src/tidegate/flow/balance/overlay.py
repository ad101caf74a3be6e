"""The overlay manager of a head (HOM): one balancing phase at a time, in three steps, with locks and a timeout.

Theory of operation. The manager is a state machine without I/O: what happened goes in, `Command`s come out, and the
caller carries them to their node. A phase has one owner, the node in trouble:

    IDLE ──request──► LOCATE ──all views──► SELECT ──plan──► MIGRATE ──all confirmed──► IDLE

LOCATE asks those edges of the own cluster that said they may help. If there is none, or if the owner says that their
help was not enough, other heads are asked to lend theirs: a head that lends is LENDING and starts no phase of its own
until the borrower returns what it had, or the timeout is over. From the plan on, every node in it is locked. A phase
that is not over by its deadline ends: what was confirmed stays, the rest is forgotten, locks are released. Overload of
a head is the same with heads as candidates. `snapshot` is what a second head needs to go on from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from tidegate.flow.balance.view import Edge, Head, Metric, Move

TIMEOUT = 10.0  # seconds of a phase (ambiguity 10)
View: TypeAlias = Edge | Head


class Step(StrEnum):
    IDLE = "idle"
    LOCATE = "locate"
    SELECT = "select"
    MIGRATE = "migrate"
    LENDING = "lending"


@dataclass(slots=True, kw_only=True, frozen=True)
class Command:
    """Something for another node to do; `phase` numbers the phase it belongs to."""

    to: str
    phase: int


@dataclass(slots=True, kw_only=True, frozen=True)
class Ask(Command):
    """Send your view."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Borrow(Command):
    """To another head: send the views of your nodes that may help; `is_head`: your own view instead."""

    is_head: bool = False


@dataclass(slots=True, kw_only=True, frozen=True)
class Lend(Command):
    """To a head that asked: these may help; none if there is no help."""

    views: tuple[View, ...] = ()


@dataclass(slots=True, kw_only=True, frozen=True)
class Return(Command):
    """To a head that lent: the phase is over."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Offer(Command):
    """To the owner: these may help; answer with a plan."""

    metric: Metric
    views: tuple[View, ...] = ()


@dataclass(slots=True, kw_only=True, frozen=True)
class Refuse(Command):
    """To who asked for help: another phase is open; ask again at the next look."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Migrate(Command):
    """To the source of a move: hand these clients over."""

    move: Move


@dataclass(slots=True, kw_only=True, frozen=True)
class Lock(Command):
    """You are part of a phase: take no new clients until it is over."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Unlock(Command):
    """The phase is over."""


@dataclass(slots=True, kw_only=True)
class Phase:
    """One balancing, for the record."""

    number: int
    owner: str
    metric: Metric
    began: float
    moves: tuple[Move, ...] = ()
    confirmed: int = 0
    ended: float | None = None
    is_timed_out: bool = False


class Overlay:
    """State of one head. `neighbours` are other heads; `history` keeps the phases that moved something."""

    MAX_HISTORY = 1_000

    __slots__ = (
        "_asked",
        "_deadline",
        "_is_borrowing",
        "_is_head_phase",
        "_lenders",
        "_open",
        "_seen",
        "_views",
        "history",
        "locks",
        "name",
        "neighbours",
        "number",
        "phase",
        "step",
        "timeout",
    )

    def __init__(self, name: str, *, neighbours: Sequence[str] = (), timeout: float = TIMEOUT) -> None:
        self.name = name
        self.neighbours = tuple(neighbours)
        self.timeout = timeout
        self.number = 0
        self.step = Step.IDLE
        self.phase: Phase | None = None
        self.locks: set[str] = set()
        self.history: list[Phase] = []
        self._deadline = 0.0
        self._asked: set[str] = set()  # who still owes a view
        self._views: dict[str, View] = {}
        self._seen: set[str] = set()  # whose views were offered before
        self._lenders: list[str] = []
        self._is_borrowing = False
        self._is_head_phase = False
        self._open: list[Move] = []  # moves that are not confirmed

    # -- step 1: locate -------------------------------------------------------------------------------------

    def request(
        self, now: float, owner: str, metric: Metric, helpers: Sequence[str], *, is_head: bool = False
    ) -> list[Command]:
        """A node is overloaded; `helpers` are the edges of this cluster that said they may help."""
        self.tick(now)
        if self.step is not Step.IDLE:
            return [] if owner == self.name else [Refuse(to=owner, phase=self.number)]
        self.number += 1
        self.step = Step.LOCATE
        self.phase = Phase(number=self.number, owner=owner, metric=metric, began=now)
        self._deadline = now + self.timeout
        self._is_head_phase = is_head
        self._views.clear()
        self._seen.clear()
        self._lenders.clear()
        self._is_borrowing = False
        if not helpers:
            return self._borrow()
        self._asked = set(helpers)
        return [Ask(to=name, phase=self.number) for name in helpers]

    def on_view(self, now: float, phase: int, view: View) -> list[Command]:
        """A node sent what `Ask` asked for; late answers to an older phase are ignored."""
        if phase != self.number or self.step is not Step.LOCATE or view.name not in self._asked:
            return []
        self._asked.discard(view.name)
        self._views[view.name] = view
        return [] if self._asked else self._offer()

    def on_lost(self, now: float, name: str) -> list[Command]:
        """A node is gone: nobody waits for it."""
        commands: list[Command] = []
        if self.phase is not None and self.phase.owner == name:
            return self._end(now)
        if name in self._asked:
            self._asked.discard(name)
            if not self._asked:
                commands = self._offer()
        if self.step is Step.MIGRATE:
            self._open = [move for move in self._open if name not in (move.source, move.target)]
            if not self._open:
                commands = self._end(now)
        self.locks.discard(name)
        return commands

    def _borrow(self) -> list[Command]:
        """Nobody here can help, or not enough: ask the other heads, once."""
        self._is_borrowing = True
        if not self.neighbours:
            return self._offer()
        self._asked = set(self.neighbours)
        return [Borrow(to=name, phase=self.number, is_head=self._is_head_phase) for name in self.neighbours]

    def lend(self, now: float, borrower: str, phase: int, views: Sequence[View]) -> list[Command]:
        """Another head asks for help; `views` are those of ours that may. We help if we have no phase of our own."""
        self.tick(now)
        if self.step is not Step.IDLE or not views:
            return [Lend(to=borrower, phase=phase)]
        self.step = Step.LENDING
        self._deadline = now + self.timeout
        self._lenders = [borrower]
        self.locks = {view.name for view in views}
        return [Lend(to=borrower, phase=phase, views=tuple(views))]

    def on_lend(self, now: float, phase: int, lender: str, views: Sequence[View]) -> list[Command]:
        if phase != self.number or self.step is not Step.LOCATE or lender not in self._asked:
            return [Return(to=lender, phase=phase)] if views else []
        self._asked.discard(lender)
        if views:
            self._lenders.append(lender)
        for view in views:
            self._views[view.name] = view
        return [] if self._asked else self._offer()

    def on_return(self, now: float, borrower: str) -> None:
        """The phase that borrowed from us is over."""
        if self.step is Step.LENDING and borrower in self._lenders:
            self._to_idle()

    # -- step 2: select -------------------------------------------------------------------------------------

    def _offer(self) -> list[Command]:
        assert self.phase is not None
        fresh = {name: view for name, view in self._views.items() if name not in self._seen}
        if not fresh and self._is_borrowing:
            return self._end(self.phase.began)  # nobody has room: nothing was moved
        self.step = Step.SELECT
        self._seen.update(fresh)
        return [
            Offer(
                to=self.phase.owner,
                phase=self.number,
                metric=self.phase.metric,
                views=tuple(self._views.values()),
            )
        ]

    def on_plan(self, now: float, phase: int, moves: Sequence[Move], is_enough: bool) -> list[Command]:
        """What the owner wants to move. If it is not enough, other clusters are asked before anything is done."""
        if phase != self.number or self.step is not Step.SELECT or self.phase is None:
            return []
        if not is_enough and not self._is_borrowing and self.neighbours:
            self.step = Step.LOCATE
            return self._borrow()
        if not moves:
            return self._end(now)
        self.step = Step.MIGRATE
        self._deadline = now + self.timeout
        self.phase.moves = tuple(moves)
        self._open = list(moves)
        self.locks = {self.phase.owner} | {move.target for move in moves}
        locks: list[Command] = [Lock(to=name, phase=self.number) for name in sorted(self.locks)]
        return locks + [Migrate(to=move.source, phase=self.number, move=move) for move in moves]

    # -- step 3: migrate ------------------------------------------------------------------------------------

    def on_confirmed(self, now: float, phase: int, move: Move) -> list[Command]:
        """All clients of a move are at their new node."""
        if phase != self.number or self.step is not Step.MIGRATE or move not in self._open:
            return []
        assert self.phase is not None
        self._open.remove(move)
        self.phase.confirmed += move.clients
        return [] if self._open else self._end(now)

    def tick(self, now: float) -> list[Command]:
        """Ends a phase whose time is over; call it at least once an interval."""
        if self.step is Step.IDLE or now < self._deadline:
            return []
        if self.step is Step.LENDING:
            self._to_idle()
            return []
        assert self.phase is not None
        self.phase.is_timed_out = True
        return self._end(now)

    def stop(self, now: float) -> list[Command]:
        """An operator ends the phase that is open."""
        return self._end(now) if self.phase is not None else []

    def _end(self, now: float) -> list[Command]:
        phase = self.phase
        assert phase is not None
        phase.ended = now
        if phase.moves:
            self.history.append(phase)
            del self.history[: -self.MAX_HISTORY]
        commands: list[Command] = [Unlock(to=name, phase=phase.number) for name in sorted(self.locks)]
        commands += [Return(to=name, phase=phase.number) for name in self._lenders]
        self._to_idle()
        return commands

    def _to_idle(self) -> None:
        self.step = Step.IDLE
        self.phase = None
        self.locks = set()
        self._asked = set()
        self._open = []
        self._lenders = []
        self._views.clear()

    # -- failover -------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What another head must know to take over: plain data."""
        phase = self.phase
        return {
            "number": self.number,
            "step": self.step.value,
            "owner": "" if phase is None else phase.owner,
            "metric": "" if phase is None else phase.metric.value,
            "locks": sorted(self.locks),
            "lenders": list(self._lenders),
            "open": [[move.topic, move.clients, move.source, move.target] for move in self._open],
        }

    def take_over(self, now: float, state: dict[str, Any]) -> list[Command]:
        """Begin where another head ended: moves under way are finished, any other phase is closed at once."""
        self.number = int(state["number"]) + 1  # answers to the old head's questions are not for us
        locks = [str(name) for name in state["locks"]]
        lenders = [str(name) for name in state["lenders"]]
        open_moves = [
            Move(topic=topic, clients=clients, source=source, target=target)
            for topic, clients, source, target in state["open"]
        ]
        self._to_idle()
        if state["step"] == Step.MIGRATE.value and open_moves:
            self.step = Step.MIGRATE
            self.phase = Phase(
                number=self.number, owner=state["owner"], metric=Metric(state["metric"]), began=now
            )
            self.phase.moves = tuple(open_moves)
            self._open = open_moves
            self._deadline = now + self.timeout
            self.locks = set(locks)
            self._lenders = lenders
            return [Migrate(to=move.source, phase=self.number, move=move) for move in open_moves]
        commands: list[Command] = [Unlock(to=name, phase=self.number) for name in locks]
        if state["step"] != Step.LENDING.value:
            commands += [Return(to=name, phase=self.number) for name in lenders]
        return commands


__all__ = [
    "TIMEOUT", "Ask", "Borrow", "Command", "Lend", "Lock", "Migrate", "Offer", "Overlay", "Phase", "Refuse", "Return",
    "Step", "Unlock", "View",
]  # fmt: skip
