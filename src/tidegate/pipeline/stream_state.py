"""The two stateful transformations: routes of devices, and clients whose behaviour changes, as files arrive.

Raw rows are first summed by slot or minute, with a watermark: a window is handed on once, when it can get no more rows,
so a device or client costs the Python worker one short list a window, however many messages it sent. What comes after
the watermark is dropped and counted by Spark (`numRowsDroppedByWatermark`); the hourly job has it all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tidegate.pipeline.stream_fold import Rate, Route, as_fields, route_of, step_rate, step_route
from tidegate.pipeline.transforms.hourly import SLOT_SECONDS

ROUTE_ROWS = "mac STRING, gw STRING, rssi DOUBLE, heard_at TIMESTAMP, second_gw STRING, flaps BIGINT"
CHANGE_ROWS = (
    "client_id STRING, changed_at TIMESTAMP, kind STRING, "
    "before DOUBLE, after DOUBLE, score DOUBLE, is_over BOOLEAN"
)
STATE = "json STRING"


def live_routes(beacons: DataFrame, hysteresis: float, age: int, lateness: str) -> DataFrame:
    """Rows of `schema.ROUTES` whenever a slot of a device is complete; the latest of a device is its route."""
    slots = (
        beacons.withWatermark("ts", lateness)
        .groupBy(F.window("ts", f"{SLOT_SECONDS} seconds"), "mac", "gw")
        .agg(F.avg("rssi").alias("rssi"), F.count("*").alias("count"), F.max("ts").alias("last"))
        .select("mac", "gw", F.col("window.end").alias("at"), "rssi", "count", "last")
    )
    return slots.groupBy("mac").transformWithState(
        statefulProcessor=RouteProcessor(hysteresis, age),
        outputStructType=ROUTE_ROWS,
        outputMode="Append",
        timeMode="None",
    )


def live_changes(publish: DataFrame, ratio: float, lateness: str) -> DataFrame:
    """Rows of `tables.CHANGES` when a client begins to behave otherwise, and when that is over."""
    minutes = (
        publish.withWatermark("ts", lateness)
        .groupBy(F.window("ts", "60 seconds"), "client_id")
        .agg(F.sum("count").alias("count"))
        .select("client_id", F.expr("unix_seconds(window.start) div 60").alias("minute"), "count")
    )
    return minutes.groupBy("client_id").transformWithState(
        statefulProcessor=ChangeProcessor(ratio),
        outputStructType=CHANGE_ROWS,
        outputMode="Append",
        timeMode="None",
    )


class _Processor(StatefulProcessor):
    """State is one text: small, and readable where a state store is inspected."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", STATE)

    def _load(self) -> dict[str, Any] | None:
        return json.loads(self._state.get()[0]) if self._state.exists() else None  # type: ignore[index]

    def _save(self, state: Route | Rate) -> None:
        self._state.update((json.dumps(as_fields(state), separators=(",", ":")),))

    def close(self) -> None:
        """Nothing is open."""


class RouteProcessor(_Processor):
    def __init__(self, hysteresis: float, age: int) -> None:
        self._hysteresis = hysteresis
        self._age = age

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        slots: dict[Any, dict[str, Row]] = {}
        for row in rows:
            slots.setdefault(row.at, {})[row.gw] = row
        fields = self._load()
        route = Route() if fields is None else route_of(fields)
        last = None
        for at in sorted(slots):
            heard = {gw: (row.rssi, row["count"]) for gw, row in slots[at].items()}
            route = step_route(route, heard, self._hysteresis, self._age)
            last = max(row["last"] for row in slots[at].values())
        self._save(route)
        if route.gw is not None:
            yield Row(
                mac=key[0],
                gw=route.gw,
                rssi=float(route.known[route.gw][0]),
                heard_at=last,
                second_gw=route.second,
                flaps=route.flaps,
            )


class ChangeProcessor(_Processor):
    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        fields = self._load()
        rate = Rate() if fields is None else Rate(**fields)
        for minute, count in sorted((row.minute, row["count"]) for row in rows):
            for change in step_rate(rate, minute, count, self._ratio):
                yield Row(
                    client_id=key[0],
                    changed_at=_moment(change.minute),
                    kind=change.kind,
                    before=change.before,
                    after=change.after,
                    score=change.score,
                    is_over=change.is_over,
                )
        self._save(rate)


def _moment(minute: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(minute * 60, UTC)
