"""Runs of messages as the broker hands them over, made into rows of `publish` and `deliver`.

Everything is done on whole columns: the interpreter lock is what this thread shares with the event loop, and numpy
gives it up while it works.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.broker.recording.batch import RUN_WIDTH, Level, Runs
from tidegate.lake.arrow import TYPES, chosen, complete, constant
from tidegate.schema import BIN_EPSILON, BINS_PER_OCTAVE, DELIVER, PUBLISH, Type

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_RUNS = 1_000_000  # of a window that are summed up together
MAX_DELIVERIES = 250_000  # rows of `deliver` in one window; more are counted as lost
BINS = 4_096  # more than there are
PART_ROWS = 65_536  # messages of level full that are turned into rows together


def bins_of(gap_us: Floats) -> Ints:
    """`schema.bin_of` for a column."""
    bins = np.zeros(len(gap_us), np.int64)
    large = gap_us >= 1
    bins[large] = 1 + np.floor(np.log2(gap_us[large]) * BINS_PER_OCTAVE + BIN_EPSILON).astype(np.int64)
    return bins


def gaps_us(clients: Ints, times: Floats, counts: Floats, last: Floats) -> Floats:
    """Gap of each run's messages, whole µs, NaN where there was none before; `last`, by client, is brought up to date.

    Messages of a client with the same time were read together, and share the time since those before them.
    """
    order = np.argsort(clients, kind="stable")
    client, time = clients[order], times[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = client[1:] != client[:-1]
    begins = is_first.copy()
    begins[1:] |= time[1:] != time[:-1]
    starts = np.flatnonzero(begins)
    together = np.add.reduceat(counts[order], starts)
    at = time[starts]
    who = client[starts]
    is_first = is_first[starts]
    before = np.empty(len(starts))
    before[1:] = at[:-1]
    before[is_first] = last[who[is_first]]
    gap = np.floor(np.maximum((at - before) * 1e6, 0.0) / together)
    is_last = np.ones(len(starts), bool)
    is_last[:-1] = is_first[1:]
    last[who[is_last]] = at[is_last]
    found = np.empty(len(order))
    found[order] = gap[np.cumsum(begins) - 1]
    return found


def timestamps(seconds: Floats) -> pa.Array:
    """Wall-clock seconds as the type of `ts`."""
    return pa.array(np.round(seconds * 1e6).astype(np.int64)).cast(TYPES[Type.TIMESTAMP])


class Summing:
    """State of the windows, of one node."""

    def __init__(self, level: Level) -> None:
        self._is_full = level is Level.FULL
        self._clients: list[str] = []
        self._generation = 0
        self._last = np.full(1_024, np.nan)
        self.lost_deliveries = 0  # not yet told
        self._latest: Runs | None = None  # batch of a window that goes on
        self._begin_window()

    def _begin_window(self) -> None:
        self._routes: list[Any] = []
        self._topics: dict[str, int] = {}
        self._route_topics: list[int] = []
        self._streams: Ints = np.zeros((0, 3), np.int64)  # client, route, QoS
        self._parts: list[Floats] = []  # columns of runs: stream, count, bytes, time, gap
        self._runs = 0
        self._delivered = np.zeros((0, 2))  # messages and bytes by stream

    def take(self, batch: Runs) -> list[tuple[str, pa.Table]]:
        """Rows that are ready now, as (table, rows)."""
        ready: list[tuple[str, pa.Table]] = []
        if self._latest is not None and batch.window != self._latest.window:
            ready += self._end_window(self._latest)
            self._begin_window()
        self._latest = None if batch.is_last else batch
        self._learn_names(batch)
        if batch.numbers:
            runs = np.frombuffer(batch.numbers, np.float64).reshape(-1, RUN_WIDTH).T
            clients = self._streams[:, 0][runs[0].astype(np.int64)]
            gaps = gaps_us(clients, runs[3], runs[1], self._last)
            self._parts.append(np.vstack((runs, gaps)))
            self._runs += runs.shape[1]
            if self._is_full:
                self._count_deliveries(runs)
                ready += self._messages(batch)
        if batch.is_last or self._runs >= MAX_RUNS:
            ready += self._end_window(batch)
        if batch.is_last:
            self._begin_window()
        return ready

    def _learn_names(self, batch: Runs) -> None:
        if batch.generation != self._generation:
            self._generation = batch.generation
            self._clients = []
            self._last.fill(np.nan)
        self._clients += batch.clients
        if len(self._clients) > len(self._last):
            more = np.full(max(len(self._clients), 2 * len(self._last)), np.nan)
            more[: len(self._last)] = self._last
            self._last = more
        for route in batch.routes:
            topic = route.topic.decode()
            self._routes.append(route)
            self._route_topics.append(self._topics.setdefault(topic, len(self._topics)))
        if batch.streams:
            self._streams = np.concatenate((self._streams, np.array(batch.streams, np.int64)))

    # -- level full -----------------------------------------------------------------------------------------

    def _count_deliveries(self, runs: Floats) -> None:
        streams = runs[0].astype(np.int64)
        size = len(self._streams)
        counted = np.zeros((size, 2))
        counted[: len(self._delivered)] = self._delivered
        counted[:, 0] += np.bincount(streams, runs[1], size)
        counted[:, 1] += np.bincount(streams, runs[2], size)
        self._delivered = counted

    def _messages(self, batch: Runs) -> list[tuple[str, pa.Table]]:
        """One row a message, in parts of bounded size."""
        parts, self._parts, self._runs = self._parts, [], 0
        runs = np.hstack(parts) if len(parts) > 1 else parts[0]
        total = np.cumsum(runs[1])
        cuts = np.searchsorted(total, np.arange(PART_ROWS, total[-1], PART_ROWS)) + 1
        pieces = (piece for piece in np.split(runs, cuts, axis=1) if piece.shape[1])
        return [("publish", self._expanded(batch, piece)) for piece in pieces]

    def _expanded(self, batch: Runs, runs: Floats) -> pa.Table:
        counts = runs[1].astype(np.int64)
        rows = int(counts.sum())
        stream = self._streams[runs[0].astype(np.int64)]
        is_known = ~np.isnan(runs[4])
        gap = np.where(is_known, runs[4], 0.0).astype(np.int64)
        unknown = None if is_known.all() else np.repeat(~is_known, counts)
        used, places = np.unique(stream[:, 0], return_inverse=True)
        topics = np.array(self._route_topics, np.int32)[stream[:, 1]]
        times = np.round((batch.clock + runs[3]) * 1e6).astype(np.int64)
        clients = [self._clients[at] for at in used.tolist()]
        columns = {
            "ts": pa.array(np.repeat(times, counts)).view(TYPES[Type.TIMESTAMP]),
            "client_id": _names(clients, np.repeat(places.astype(np.int32), counts)),
            "topic": _names(list(self._topics), np.repeat(topics, counts)),
            "qos": pa.array(np.repeat(stream[:, 2].astype(np.int16), counts)),
            "window_us": constant(0, pa.int64(), rows),
            "count": constant(1, pa.int64(), rows),
            "bytes": pa.array(np.repeat(runs[2].astype(np.int64) // counts, counts)),
            "gap_us": pa.array(np.repeat(gap, counts), mask=unknown),
        }
        return chosen(PUBLISH, columns)

    # -- windows --------------------------------------------------------------------------------------------

    def _end_window(self, batch: Runs) -> list[tuple[str, pa.Table]]:
        ready: list[tuple[str, pa.Table]] = []
        if self._parts:
            runs = np.hstack(self._parts)
            self._count_deliveries(runs)
            ready.append(("publish", self._sums(batch, runs)))
        if len(self._delivered):
            deliveries = self._deliveries(batch)
            if deliveries is not None:
                ready.append(("deliver", deliveries))
        self._parts, self._runs = [], 0
        self._delivered = np.zeros((0, 2))
        return ready

    def _window(self, batch: Runs, rows: int) -> dict[str, pa.Array]:
        begin = batch.clock + batch.window_start
        length = max(1, round((batch.window_end - batch.window_start) * 1e6))
        return {
            "ts": timestamps(np.full(rows, begin)),
            "window_us": pa.array(np.full(rows, length, np.int64)),
        }

    def _sums(self, batch: Runs, runs: Floats) -> pa.Table:
        """One row for each client, topic and QoS."""
        streams = self._streams
        topics = np.array(self._route_topics, np.int64)[streams[:, 1]]
        keys = (streams[:, 0] * len(self._topics) + topics) * 3 + streams[:, 2]
        run_keys = keys[runs[0].astype(np.int64)]
        groups, group = np.unique(run_keys, return_inverse=True)
        rows = len(groups)
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        times = runs[3][order]
        is_known = ~np.isnan(runs[4])
        bins = bins_of(runs[4][is_known])
        cells, cell = np.unique(group[is_known] * BINS + bins, return_inverse=True)
        counts = np.bincount(cell, runs[1][is_known], len(cells)).astype(np.int64)
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.bincount(cells // BINS, minlength=rows), out=offsets[1:])
        client = groups // 3 // len(self._topics)
        used, places = np.unique(client, return_inverse=True)
        clock = batch.clock
        columns = self._window(batch, rows) | {
            "client_id": _names([self._clients[at] for at in used.tolist()], places.astype(np.int32)),
            "topic": _names(list(self._topics), (groups // 3 % len(self._topics)).astype(np.int32)),
            "qos": pa.array((groups % 3).astype(np.int16)),
            "count": pa.array(np.bincount(group, runs[1], rows).astype(np.int64)),
            "bytes": pa.array(np.bincount(group, runs[2], rows).astype(np.int64)),
            "first": timestamps(clock + np.minimum.reduceat(times, starts)),
            "last": timestamps(clock + np.maximum.reduceat(times, starts)),
            "gap_bins": pa.ListArray.from_arrays(offsets, pa.array((cells % BINS).astype(np.int16))),
            "gap_counts": pa.ListArray.from_arrays(offsets, pa.array(counts)),
        }
        return complete(PUBLISH, columns, rows)

    def _deliveries(self, batch: Runs) -> pa.Table | None:
        """Who was given what: every message of a stream went to all recipients of its route."""
        size = len(self._routes) * 3
        streams = self._streams[: len(self._delivered)]
        keys = streams[:, 1] * 3 + streams[:, 2]
        counts = np.bincount(keys, self._delivered[:, 0], size).astype(np.int64)
        sizes = np.bincount(keys, self._delivered[:, 1], size).astype(np.int64)
        clients: list[str | None] = []
        groups: list[str | None] = []
        key_of: list[int] = []
        for key in np.flatnonzero(counts).tolist():
            route = self._routes[key // 3]
            recipients = len(route.targets) + len(route.shared)
            if len(clients) + recipients > MAX_DELIVERIES:
                self.lost_deliveries += recipients
                continue
            clients += [target.session.client_id for target in route.targets]
            groups += [None] * len(route.targets)
            clients += [None] * len(route.shared)
            groups += [group.name for group in route.shared]
            key_of += [key] * (len(clients) - len(key_of))
        if not clients:
            return None
        keyed = np.array(key_of)
        topics = np.array(self._route_topics, np.int32)[keyed // 3]
        rows = len(clients)
        columns = self._window(batch, rows) | {
            "client_id": pa.array(clients, pa.string()),
            "topic": _names(list(self._topics), topics).cast(pa.string()),
            "qos": pa.array((keyed % 3).astype(np.int16)),
            "group": pa.array(groups, pa.string()),
            "count": pa.array(counts[keyed]),
            "bytes": pa.array(sizes[keyed]),
            "dropped": pa.array(np.zeros(rows, np.int64)),
        }
        return complete(DELIVER, columns, rows)


def _names(names: list[str], places: NDArray[np.int32]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places), pa.array(names, pa.string()), safe=False)
