"""`tidegate lake generate`: a lake to play with, as real ones look, with the truth about it in `_labels`.

Hour by hour, so that memory does not grow with the rows; the same seed gives the same rows. Beside `publish` there are
gateways that hear labels, calls, shared groups, checks and the nodes' own state, in proportion. `_labels` has what was
planted: which clients went wrong and when, which topics burst together, which gateway is right for a device.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.lake import generate_events as events
from tidegate.lake.arrow import file_metadata, memory_schema, writer_options
from tidegate.lake.errors import LakeError
from tidegate.lake.generate_fleet import ANOMALIES, REGULARITY_NAMES, SITES, Fleet, make_fleet
from tidegate.lake.generate_publish import Hour, Traffic
from tidegate.lake.summing import BINS, bins_of
from tidegate.lake.target import Target
from tidegate.schema import (
    META_LEVEL,
    META_NODE,
    META_RUN,
    TABLES,
    file_name,
    partition_of_us,
)

HOUR_US: Final = 3_600_000_000
WINDOW_US: Final = 10_000_000  # of summaries
LOAD_WINDOW_US: Final = 10_000_000
FILE_ROWS: Final = 4_000_000
GROUP_ROWS: Final = 1_000_000
LABELS: Final = "_labels"  # readers of the lake pass over it
MONDAY: Final = datetime(2026, 1, 5, tzinfo=UTC)


class GeneratedLevel(StrEnum):
    """As the recorder's levels; `mixed` alternates by the hour."""

    FULL = "full"
    SUMMARY = "summary"
    MIXED = "mixed"


@dataclass(slots=True, kw_only=True, frozen=True)
class GenerateSettings:
    """0 stands for a number that fits the rows. `start` becomes UTC; without a zone it is."""

    rows: int
    seed: int = 1
    hours: int = 24
    start: datetime = MONDAY
    clients: int = 0
    topics: int = 0
    devices: int = 0
    nodes: int = 2
    level: GeneratedLevel = GeneratedLevel.FULL
    anomalies: float = 0.02  # share of the clients

    def __post_init__(self) -> None:
        if self.rows < 1_000 or self.hours < 1 or self.nodes < 1:
            raise LakeError("", "a lake has at least 1000 rows, an hour and a node", "try --rows 100000")
        try:
            start = (
                self.start.replace(tzinfo=UTC) if self.start.tzinfo is None else self.start.astimezone(UTC)
            )
        except OverflowError:
            raise LakeError("", "the start is out of range", "as in 2026-01-05T00:00Z") from None
        if start.minute or start.second or start.microsecond:
            raise LakeError("", "the start is a whole hour in UTC", "as in 2026-01-05T00:00Z")
        object.__setattr__(self, "start", start)
        if not 0.0 <= self.anomalies <= 0.5:
            raise LakeError("", "anomalies are a share of the clients, at most 0.5", "try --anomalies 0.02")


@dataclass(slots=True, kw_only=True)
class Generated:
    """What was written: rows by table, files, bytes."""

    rows: dict[str, int]
    files: int
    bytes: int


def generate(
    lake: Path, settings: GenerateSettings, progress: Callable[[int, int], None] | None = None
) -> Generated:
    """Write a lake. Raises `LakeError` if there is one already. `progress` gets hours done and rows so far."""
    if any((lake / name).exists() for name in (*TABLES, LABELS)):
        raise LakeError(str(lake), "there is a lake already", "name another folder")
    rng = np.random.default_rng([settings.seed, 3])
    clients = settings.clients or int(np.clip(settings.rows // 2_500, 200, 1_000_000))
    topics = settings.topics or int(np.clip(clients // 10, 60, 20_000))
    devices = settings.devices or int(np.clip(settings.rows // 10_000, 100, 50_000))
    fleet = make_fleet(
        settings.rows,
        settings.start,
        settings.hours,
        clients,
        topics,
        settings.nodes,
        settings.anomalies,
        rng,
    )
    writer = _Writer(Target.open(lake), settings, fleet)
    store = events.Store(devices, settings.hours, rng)
    polling = events.Polling(max(4, clients // 500), rng)
    traffic = Traffic(fleet, settings.seed)
    share = settings.rows / settings.hours
    for index in range(settings.hours):
        start_us = int(settings.start.timestamp()) * 1_000_000 + index * HOUR_US
        at = datetime.fromtimestamp(start_us // 1_000_000, UTC)
        hour = traffic.next_hour(at.hour, at.weekday())
        draw = np.random.default_rng([settings.seed, 13, index])
        writer.publish(index, start_us, hour)
        writer.table("beacon", start_us, store.hour(index, start_us, int(share / 50), draw))
        writer.table("rpc", start_us, events.calls(store, at.hour, start_us, max(20, int(share / 500)), draw))
        writer.table("member", start_us, events.members(start_us, WINDOW_US, 2, draw))
        writer.table("check", start_us, polling.hour(start_us, max(100, int(share / 500)), draw))
        if progress is not None:
            progress(index + 1, writer.done.rows.get("publish", 0))
    _write_labels(lake / LABELS, settings, fleet, store, polling)
    return writer.done


class _Writer:
    """Columns to files, each complete before it is visible."""

    def __init__(self, target: Target, settings: GenerateSettings, fleet: Fleet) -> None:
        self._target = target
        self._settings = settings
        self._fleet = fleet
        self._numbers: dict[tuple[str, str], int] = {}
        self._ids = pa.array(fleet.client_ids)
        self._topics = pa.array(fleet.topics)
        self._labels = pa.array([ANOMALIES[at] for at in fleet.anomaly.tolist()])
        self.done = Generated(rows={}, files=0, bytes=0)

    def publish(self, index: int, start_us: int, hour: Hour) -> None:
        level = self._settings.level
        is_summary = level is GeneratedLevel.SUMMARY or (level is GeneratedLevel.MIXED and index % 2 == 0)
        base_us = int(self._settings.start.timestamp()) * 1_000_000
        of_node = self._fleet.node[hour.client]
        for node in range(self._settings.nodes):
            mine = np.flatnonzero(of_node == node)
            columns = self._summaries(hour, mine, base_us) if is_summary else self._rows(hour, mine, base_us)
            self._write("publish", start_us, node, columns, "summary" if is_summary else "full")
            self.table("load", start_us, self._load(hour, mine, base_us, start_us), node)
            self.table("deliver", start_us, self._deliveries(hour, mine, base_us), node)

    def table(self, name: str, start_us: int, columns: events.Columns, node: int = 0) -> None:
        self._write(name, start_us, node, columns, "summary")

    def _rows(self, hour: Hour, mine: Any, base_us: int) -> events.Columns:
        client = hour.client[mine]
        gap = hour.gap_us[mine]
        size = len(mine)
        codes = pa.array(client)
        return {
            "ts": events.timestamps(base_us + hour.at_us[mine]),
            "client_id": pa.DictionaryArray.from_arrays(codes, self._ids),
            "topic": pa.DictionaryArray.from_arrays(pa.array(hour.topic[mine]), self._topics),
            "qos": pa.array(self._fleet.qos[client].astype(np.int16)),
            "window_us": pa.array(np.zeros(size, np.int64)),
            "count": pa.array(np.ones(size, np.int64)),
            "bytes": pa.array(hour.size[mine].astype(np.int64)),
            "gap_us": pa.array(gap, mask=gap < 0),
            "label": pa.DictionaryArray.from_arrays(codes, self._labels),
        }

    def _summaries(self, hour: Hour, mine: Any, base_us: int) -> events.Columns:
        """What the recorder writes at level summary: a row for each client, topic and window."""
        client = hour.client[mine].astype(np.int64)
        topic = hour.topic[mine].astype(np.int64)
        at = base_us + hour.at_us[mine]
        gap = hour.gap_us[mine]
        window = at // WINDOW_US
        first_window = int(window.min()) if len(window) else 0
        key = ((window - first_window) * len(self._topics) + topic) * len(self._ids) + client
        order = np.lexsort((at, key))
        key, at, gap, client, topic, window = (each[order] for each in (key, at, gap, client, topic, window))
        begins = (
            np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
            if len(key)
            else np.zeros(0, np.int64)
        )
        ends = np.concatenate([begins[1:], [len(key)]]).astype(np.int64)
        bins, counts, offsets = _histograms(gap, begins, ends)
        size = hour.size[mine][order].astype(np.int64)
        codes = pa.array(client[begins].astype(np.int32))
        return {
            "ts": events.timestamps(window[begins] * WINDOW_US),
            "client_id": pa.DictionaryArray.from_arrays(codes, self._ids),
            "topic": pa.DictionaryArray.from_arrays(pa.array(topic[begins].astype(np.int32)), self._topics),
            "qos": pa.array(self._fleet.qos[client[begins]].astype(np.int16)),
            "window_us": pa.array(np.full(len(begins), WINDOW_US)),
            "count": pa.array(ends - begins),
            "bytes": pa.array(np.add.reduceat(size, begins) if len(begins) else size),
            "first": events.timestamps(at[begins]),
            "last": events.timestamps(at[ends - 1] if len(begins) else at),
            "gap_bins": pa.ListArray.from_arrays(pa.array(offsets), pa.array(bins.astype(np.int16))),
            "gap_counts": pa.ListArray.from_arrays(pa.array(offsets), pa.array(counts)),
            "label": pa.DictionaryArray.from_arrays(codes, self._labels),
        }

    def _load(self, hour: Hour, mine: Any, base_us: int, start_us: int) -> events.Columns:
        windows = HOUR_US // LOAD_WINDOW_US
        at = (base_us + hour.at_us[mine] - start_us) // LOAD_WINDOW_US
        received = np.bincount(at, minlength=windows)
        size = np.bincount(at, weights=hour.size[mine], minlength=windows).astype(np.int64)
        busy = received / max(1.0, received.mean() * 6.0)
        state = np.digitize(busy, [0.7, 0.95])
        zeros = pa.array(np.zeros(windows, np.int64))
        fixed = {
            "memory_bytes": 80_000_000,
            "connections": len(self._fleet.client_ids) // self._settings.nodes,
            "sessions": len(self._fleet.client_ids) // self._settings.nodes,
            "subscriptions": 200,
        }
        return {
            "ts": events.timestamps(start_us + np.arange(windows) * LOAD_WINDOW_US),
            "window_us": pa.array(np.full(windows, LOAD_WINDOW_US)),
            "state": events.names(state, ["LOW", "HIGH", "OVERLOAD"]),
            "wait_us": pa.array((200 + 2_000 * busy**2).astype(np.int64)),
            "lag_us": pa.array((100 + 1_500 * busy).astype(np.int64)),
            "cpu_us": pa.array((received * 20).astype(np.int64)),
            "memory_share": pa.array(np.full(windows, 0.1)),
            "queue_share": pa.array(busy * 0.05),
            "held": pa.array((state > 0).astype(np.int64)),
            "publish_received": pa.array(received),
            "publish_sent": pa.array(received * 2),
            "bytes_received": pa.array(size),
            "bytes_sent": pa.array(size * 2),
            "dropped": zeros,
        } | {name: pa.array(np.full(windows, value)) for name, value in fixed.items()}

    def _deliveries(self, hour: Hour, mine: Any, base_us: int) -> events.Columns:
        """Each topic has one to eight subscribers, told every five minutes."""
        step_us = 300_000_000
        topic = hour.topic[mine].astype(np.int64)
        step = (base_us + hour.at_us[mine]) // step_us
        first = int(step.min()) if len(step) else 0
        key, inverse = np.unique((step - first) * len(self._topics) + topic, return_inverse=True)
        count = np.bincount(inverse, minlength=len(key))
        size = np.bincount(inverse, weights=hour.size[mine], minlength=len(key)).astype(np.int64)
        which = key % len(self._topics)
        fan_out = 1 + which * 7 % 8
        row = np.repeat(np.arange(len(key)), fan_out)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(fan_out) - fan_out, fan_out)
        return {
            "ts": events.timestamps((first + key[row] // len(self._topics)) * step_us),
            "client_id": events.names((which[row] + nth * 13) % 64, [f"app-{n:02d}" for n in range(64)]),
            "topic": events.names(which[row], self._fleet.topics),
            "qos": pa.array(np.zeros(len(row), np.int16)),
            "window_us": pa.array(np.full(len(row), step_us)),
            "count": pa.array(count[row]),
            "bytes": pa.array(size[row]),
            "dropped": pa.array(np.zeros(len(row), np.int64)),
        }

    def _write(self, name: str, start_us: int, node: int, columns: events.Columns, level: str) -> None:
        table = TABLES[name]
        rows = len(columns["ts"])
        node_name, run = f"node-{node + 1}", f"g{self._settings.seed:x}{node + 1:02d}"
        told = {META_NODE: node_name.encode(), META_RUN: run.encode(), META_LEVEL: level.encode()}
        schema = memory_schema(table)
        zeros = pa.array(np.zeros(rows, np.int32))
        known = {
            "run": pa.DictionaryArray.from_arrays(zeros, [run]),
            "node": pa.DictionaryArray.from_arrays(zeros, [node_name]),
            "lost": pa.array(np.zeros(rows, np.int64)),
            **columns,
        }
        arrays = [known[f.name].cast(f.type) if f.name in known else pa.nulls(rows, f.type) for f in schema]
        data = pa.table(arrays, schema=schema)
        for begin in range(0, rows, FILE_ROWS):
            number = self._numbers.get((name, node_name), 0)
            self._numbers[(name, node_name)] = number + 1
            relative = f"{name}/{partition_of_us(start_us)}/{file_name(node_name, run, number)}"
            pending = self._target.create(relative)
            try:
                with pq.ParquetWriter(pending.stream, schema, **writer_options(table)) as out:
                    out.write_table(data.slice(begin, FILE_ROWS), row_group_size=GROUP_ROWS)
                    out.add_key_value_metadata(file_metadata(table) | told)
                self.done.bytes += pending.tell()
                pending.commit()
            except BaseException:
                pending.abort()
                raise
            self.done.files += 1
        self.done.rows[name] = self.done.rows.get(name, 0) + rows


def _histograms(gap: Any, begins: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Bins, counts and list offsets of the gaps of each row; an unknown gap is in none."""
    row = np.repeat(np.arange(len(begins)), ends - begins)
    known = gap >= 0
    row, gap = row[known], gap[known]
    key, counts = np.unique(row * BINS + bins_of(gap), return_counts=True)
    offsets = np.searchsorted(key // BINS, np.arange(len(begins) + 1)).astype(np.int32)
    return key % BINS, counts.astype(np.int64), offsets


def _write_labels(
    folder: Path, settings: GenerateSettings, fleet: Fleet, store: events.Store, polling: events.Polling
) -> None:
    folder.mkdir(parents=True)
    start_us = int(settings.start.timestamp()) * 1_000_000

    def moment(seconds: Any) -> pa.Array:
        known = np.isfinite(seconds) & (seconds < settings.hours * 3600.0)
        values = start_us + np.where(known, seconds * 1e6, 0).astype(np.int64)
        return pa.array(values, mask=~known).cast(pa.timestamp("us", tz="UTC"))

    is_wrong = fleet.anomaly > 0
    clients = {
        "client_id": pa.array(fleet.client_ids),
        "kind": pa.array([ANOMALIES[at] for at in fleet.anomaly.tolist()]),
        "onset": moment(np.where(is_wrong, fleet.onset, np.inf)),
        "end": moment(np.where(is_wrong, fleet.end, np.inf)),
        "factor": pa.array(fleet.factor),
        "rate": pa.array(fleet.rate),
        "site": pa.array([SITES[at][0] for at in fleet.site.tolist()]),
        "regularity": pa.array([REGULARITY_NAMES[at] for at in fleet.regularity.tolist()]),
    }
    topics = {"topic": pa.array(fleet.topics), "burst_group": pa.array(fleet.topic_group)}
    control = {
        "client_id": pa.array([f"kp-{n:04d}" for n in range(len(polling.loss_rate))]),
        "loss_rate": pa.array(polling.loss_rate),
    }
    for name, columns in (
        ("clients", clients),
        ("topics", topics),
        ("routes", store.labels()),
        ("control", control),
    ):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    text = json.dumps(asdict(settings), default=str, indent=1)
    (folder / "settings.json").write_text(text + "\n", encoding="utf-8")
