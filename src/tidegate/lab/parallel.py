"""The same function over many inputs, on all processors; results in the order of the inputs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
CHUNK = 8  # inputs sent to a process at once


def parallel(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`function` must be importable by name; what it raises is raised here."""
    workers = min(os.cpu_count() or 1, max(1, len(items) // CHUNK))
    if workers == 1:
        yield from map(function, items)
        return
    # A fresh interpreter for each would import everything again, and nothing here has threads yet.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(function, items, chunksize=CHUNK)
