"""The members of a large group in the order in which they will be free, without looking at all of them.

`ClientLoad.free_at` is a moment, not a duration, so the order stays as it is while time passes; only sending, reports
and acknowledgements change it. A member that got later is found out when it comes to the top; one that got earlier
announces it (`ClientLoad.watchers`), or is found by a look at one member with every choice, in turn.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final
from weakref import ref

from tidegate.flow.shared.load import Member, Watcher

TRIES: Final = 16  # entries taken from the top with one choice, and members brought forward: bounds its work
GROWTH: Final = 4  # entries per member, most of them void, at which the heap is made anew


class Timetable:
    """For one tuple of members. O(log n) a choice, at the price of the heap in C."""

    __slots__ = ("__weakref__", "_cursor", "_heap", "_keys", "_loads", "changed", "members")

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self.changed: set[int] = set()
        self._loads = [member.load for member in members]  # one step less to each, in the hot path
        self._cursor = 0
        self._keys: list[float] = []  # of each member's one valid entry
        self._heap: list[tuple[float, int]] = []
        self._build()
        me: ref[Watcher] = ref(self)
        for index, member in enumerate(members):
            member.load.watch(me, index)

    def _build(self) -> None:
        self.changed.clear()
        self._keys = [load.free_at - load.discount for load in self._loads]
        self._heap = [(key, index) for index, key in enumerate(self._keys)]
        heapify(self._heap)

    def earliest(self, now: float) -> int:
        """The member that is free first, among idle ones the one that has been for longest."""
        loads = self._loads
        keys = self._keys
        heap = self._heap
        self._cursor = index = (self._cursor or len(keys)) - 1
        if self.changed or loads[index].free_at < keys[index]:
            self._advance(index, now)
        left = TRIES
        while left:
            key, index = heap[0]
            load = loads[index]
            free_at = load.free_at
            if load.awaiting:
                behind = now + (load.awaiting - 1) * load.service
                if free_at < behind:  # overdue: the longer it is, the longer it may still take
                    free_at = behind + behind - free_at
            if load.delay:
                free_at = max(free_at - load.discount, now + load.delay)
            if free_at <= key:
                return index
            left -= 1
            if key == keys[index]:
                keys[index] = free_at
                heapreplace(heap, (free_at, index))
            else:
                heappop(heap)  # void: the member has an earlier entry, or had
        if len(heap) > GROWTH * len(keys):
            self._build()
        return self._heap[0][1]

    def _advance(self, index: int, now: float) -> None:
        """Gives members that are free earlier than their entry says an earlier one."""
        loads = self._loads
        keys = self._keys
        changed = self.changed
        for _ in range(TRIES):
            load = loads[index]
            free_at = load.free_at - load.discount
            # Who is overdue is not earlier for it.
            if free_at < keys[index] and not (load.awaiting and free_at < now):
                keys[index] = free_at
                heappush(self._heap, (free_at, index))
            if not changed:
                break
            index = changed.pop()
