"""A sorted collection of numbers that knows positions: insert, remove, rank and select in O(log n).

Values lie in chunks of bounded length; a Fenwick tree over the lengths turns a chunk and an offset into a position.
The tree is rebuilt only when a chunk is split or vanishes, which is rare enough not to count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

CHUNK = 512  # moving half of this many pointers costs less than the bisection before it


class SortedRates:
    """A sorted multiset of floats."""

    __slots__ = ("_chunks", "_maxes", "_size", "_tree")

    def __init__(self) -> None:
        self._chunks: list[list[float]] = []
        self._maxes: list[float] = []
        self._tree: list[int] = [0]
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, value: float) -> None:
        self._size += 1
        if not self._chunks:
            self._chunks.append([value])
            self._rebuild()
            return
        at = min(bisect_left(self._maxes, value), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, value)
        if len(chunk) > CHUNK:
            self._chunks.insert(at + 1, chunk[CHUNK // 2 :])
            del chunk[CHUNK // 2 :]
            self._rebuild()
            return
        self._maxes[at] = chunk[-1]
        self._count(at, 1)

    def remove(self, value: float) -> None:
        """Remove one that was added; raises ValueError if there is none."""
        at = bisect_left(self._maxes, value)
        chunk = self._chunks[at] if at < len(self._chunks) else []
        offset = bisect_left(chunk, value)
        if offset == len(chunk) or chunk[offset] != value:
            raise ValueError(f"{value} is not in the collection")
        del chunk[offset]
        self._size -= 1
        if not chunk:
            del self._chunks[at]
            self._rebuild()
            return
        self._maxes[at] = chunk[-1]
        self._count(at, -1)

    def below(self, value: float) -> int:
        """How many are strictly smaller."""
        at = bisect_left(self._maxes, value)
        if at == len(self._chunks):
            return self._size
        return self._before(at) + bisect_left(self._chunks[at], value)

    def not_above(self, value: float) -> int:
        """How many are smaller or equal."""
        at = bisect_right(self._maxes, value)
        if at == len(self._chunks):
            return self._size
        return self._before(at) + bisect_right(self._chunks[at], value)

    def select(self, position: int) -> float:
        """The value at a position, 0 the smallest; raises IndexError."""
        if not 0 <= position < self._size:
            raise IndexError(position)
        tree = self._tree
        at = 0
        step = 1 << (len(tree) - 1).bit_length()
        while step:
            nxt = at + step
            if nxt < len(tree) and tree[nxt] <= position:
                at = nxt
                position -= tree[nxt]
            step >>= 1
        return self._chunks[at][position]

    def _before(self, at: int) -> int:
        total = 0
        while at:
            total += self._tree[at]
            at &= at - 1
        return total

    def _count(self, at: int, change: int) -> None:
        at += 1
        while at < len(self._tree):
            self._tree[at] += change
            at += at & -at

    def _rebuild(self) -> None:
        self._maxes = [chunk[-1] for chunk in self._chunks]
        tree = [0] + [len(chunk) for chunk in self._chunks]
        for at in range(1, len(tree)):
            parent = at + (at & -at)
            if parent < len(tree):
                tree[parent] += tree[at]
        self._tree = tree
