"""Millions of rows by name without an object for each: sorted bytes and columns of numbers, found by bisection.

Nothing here is built row by row, so a thread can prepare it while the event loop goes on: Arrow and numpy give up the
interpreter lock while they work. A look-up takes some microseconds and happens once for each client that comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.flow.backoff import Prior
from tidegate.policy.errors import PolicyError

SEPARATOR = "\0"  # in no client identifier or share name [MQTT5-1.5.4-2]


class Names:
    """Unique names in the order of their bytes."""

    __slots__ = ("_data", "_offsets", "size")

    def __init__(self, names: pa.Array) -> None:
        names = names.cast(pa.large_string())
        self.size = len(names)
        _, offsets, data = names.buffers()
        self._offsets: NDArray[np.int64] = np.zeros(1, np.int64)
        if self.size:
            self._offsets = np.frombuffer(offsets, np.int64)[names.offset : names.offset + self.size + 1]
        # Arrow's bytes are signed, and those of another sign are never equal.
        self._data = memoryview(data).cast("B") if data is not None else memoryview(b"")

    def __getitem__(self, at: int) -> str:
        return str(self._data[self._offsets[at] : self._offsets[at + 1]], "utf-8")

    def find(self, name: str) -> int:
        """Place of a name, -1 if it is not there."""
        wanted = name.encode()
        data, offsets = self._data, self._offsets
        low, high = 0, self.size
        while low < high:
            middle = (low + high) // 2
            if bytes(data[offsets[middle] : offsets[middle + 1]]) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < self.size and data[offsets[low] : offsets[low + 1]] == wanted:
            return low
        return -1


class Priors(Mapping[str, Prior]):
    """What is known of publishers, by client identifier."""

    def __init__(self, names: Names, columns: Mapping[str, NDArray[np.float64]]) -> None:
        self._names = names
        self._rate = columns["rate"]
        self._dispersion = columns["dispersion"]
        self._limit = columns["limit"]
        self._rank = columns["rank"]

    def __len__(self) -> int:
        return self._names.size

    def __iter__(self) -> Iterator[str]:
        return (self._names[at] for at in range(len(self)))

    def __getitem__(self, client_id: str) -> Prior:
        at = self._names.find(client_id)
        if at < 0:
            raise KeyError(client_id)
        return Prior(
            rate=float(self._rate[at]),
            dispersion=float(self._dispersion[at]),
            limit=float(self._limit[at]),
            rank=int(self._rank[at]),
        )


class Speeds(Mapping[tuple[str, str], float]):
    """Seconds a message takes, by share name (or "") and client identifier."""

    def __init__(self, names: Names, service: NDArray[np.float64]) -> None:
        self._names = names
        self._service = service

    def __len__(self) -> int:
        return self._names.size

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for at in range(len(self)):
            group, _, client_id = self._names[at].partition(SEPARATOR)
            yield group, client_id

    def __getitem__(self, key: tuple[str, str]) -> float:
        at = self._names.find(SEPARATOR.join(key))
        if at < 0:
            raise KeyError(key)
        return float(self._service[at])


def sorted_by(names: pa.Array, data: pa.Table, place: str) -> tuple[pa.Array, pa.Table]:
    """Names and rows in the order of names; raises PolicyError for a name that comes twice, or none."""
    if names.null_count:
        raise PolicyError(place, "a row has no name")
    if len(names) < 2:
        return names, data
    if not pc.all(pc.less(names[:-1], names[1:])).as_py():
        order = pc.sort_indices(names)
        names, data = names.take(order), data.take(order)
        twice = pc.equal(names[:-1], names[1:])
        if pc.any(twice).as_py():
            name = names[pc.index(twice, True).as_py()].as_py()
            raise PolicyError(place, f"{name!r} comes twice")
    return names, data


def numbers(data: pa.Table, column: str, place: str, ceiling: float = np.inf) -> NDArray[np.float64]:
    """A column of finite numbers that are not negative; higher ones than `ceiling` are lowered to it."""
    found = data[column].combine_chunks().cast(pa.float64())
    if found.null_count:
        raise PolicyError(place, f"a row has no {column}")
    values: NDArray[np.float64] = found.to_numpy(zero_copy_only=False)
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise PolicyError(place, f"{column} is negative or not a number in some row")
    return np.minimum(values, ceiling) if np.isfinite(ceiling) else values
