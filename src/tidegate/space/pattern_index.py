"""From a changed triple to the patterns it matches, without looking at the others.

A pattern is filed under its constants. A triple is looked up once for each of the at most eight shapes of patterns in
use (which of subject, predicate and object are constant), so the cost depends on what matches, not on what is filed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from pyoxigraph import Triple

from tidegate.space.terms import Term

T = TypeVar("T")
Mask: TypeAlias = tuple[Term | None, Term | None, Term | None]


class PatternIndex(Generic[T]):
    """Values by mask; a value may be filed under several, and several under one."""

    def __init__(self) -> None:
        self._shapes: dict[int, dict[Mask, dict[T, None]]] = {}

    def add(self, mask: Mask, value: T) -> None:
        self._shapes.setdefault(_shape(mask), {}).setdefault(mask, {})[value] = None

    def remove(self, mask: Mask, value: T) -> None:
        shape = self._shapes[_shape(mask)]
        values = shape[mask]
        del values[value]
        if not values:
            del shape[mask]
            if not shape:
                del self._shapes[_shape(mask)]

    def matching(self, triple: Triple) -> Iterator[T]:
        """Values whose mask matches, each once for each such mask."""
        if not self._shapes:
            return
        subject, predicate, obj = triple.subject, triple.predicate, triple.object
        for shape, masks in self._shapes.items():
            key: Mask = (
                subject if shape & 4 else None,
                predicate if shape & 2 else None,
                obj if shape & 1 else None,
            )
            values = masks.get(key)
            if values is not None:
                yield from values

    def __len__(self) -> int:
        return sum(len(values) for shape in self._shapes.values() for values in shape.values())


def _shape(mask: Mask) -> int:
    return 4 * (mask[0] is not None) + 2 * (mask[1] is not None) + (mask[2] is not None)
