"""The pipeline as it never ends: `tidegate pipeline stream`. Files of the lake come, the policy follows.

Three queries with a checkpoint each, below `<out>/stream/`:

- `traffic` notices new files of `publish`, runs the batch transformations over the hours they belong to, and writes the
  findings and a snapshot. An hour is computed from its files and replaces what was there, so whatever is repeated after
  a crash, comes late, or was compacted meanwhile counts once.
- `routes` and `changes` keep state (see `stream_state`) and say within minutes what the hourly jobs say after an hour.
  Spark writes state and offsets together: each window is folded into it once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.inventory import open_filesystem
from tidegate.pipeline.jobs import members
from tidegate.pipeline.jobs.baselines import find_changes
from tidegate.pipeline.run import attempt, write_policy
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.stream_state import live_changes, live_routes
from tidegate.pipeline.transforms import baselines
from tidegate.pipeline.types import HOUR_PARTITION, spark_schema
from tidegate.schema import Table

ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
RECORDED: Final = "*-[0-9][0-9][0-9][0-9][0-9][0-9].parquet"  # not what compaction made of files seen before
LIVE_CHANGES: Final = Table(
    "live_changes",
    "Clients whose behaviour changed, minute by minute.",
    tables.CHANGES.columns,
    key=("client_id",),
)


@dataclass(slots=True, kw_only=True, frozen=True)
class StreamSettings:
    """`every`: seconds between looks at the lake. `lateness`: how long rows may be under way."""

    pipeline: PipelineSettings
    every: float = 15.0
    lateness: str = "2 minutes"
    files_per_trigger: int = 1000

    @property
    def folder(self) -> str:
        return f"{self.pipeline.out_folder}/stream"


class PolicyStream:
    """The running queries. `on_policy` is told each version that was written, and the seconds it took."""

    def __init__(
        self,
        spark: SparkSession,
        settings: StreamSettings,
        on_policy: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._on_policy = on_policy
        self._turn = threading.Lock()
        self.queries: dict[str, Any] = {}

    def start(self, *, available_now: bool = False) -> None:
        """Start all queries; with `available_now` they end when they have read what is there."""
        self._spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)
        pipeline = self._settings.pipeline
        lateness = self._settings.lateness
        routes = live_routes(
            self._files(schema.BEACON, is_once=True),
            pipeline.hysteresis_db,
            pipeline.route_age_slots,
            lateness,
        )
        found = live_changes(self._files(schema.PUBLISH, is_once=True), pipeline.change_ratio, lateness)
        self._start("routes", routes, self._on_routes, available_now)
        self._start("changes", found, self._on_changes, available_now)
        self._start("traffic", self._files(schema.PUBLISH, is_once=False), self._on_traffic, available_now)

    def wait(self) -> None:
        """Until one of them ends; raises what ended it."""
        while all(query.isActive for query in self.queries.values()):
            time.sleep(0.2)
        for query in self.queries.values():
            if query.exception() is not None:
                raise query.exception()

    def wait_all(self) -> None:
        for query in self.queries.values():
            query.awaitTermination()

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()

    def _files(self, table: Table, *, is_once: bool) -> DataFrame:
        """Rows of files as they come. `is_once`: rows that compaction moves must not come again."""
        lake = self._settings.pipeline.lake.rstrip("/")
        filesystem, root = open_filesystem(lake)
        io.create_folder(filesystem, f"{root}/{table.name}")  # a table that nothing was recorded of yet
        reader = (
            self._spark.readStream.schema(spark_schema(table, HOUR_PARTITION))
            .option("maxFilesPerTrigger", self._settings.files_per_trigger)
            # A truncated file is named by the inventory, and must not end the stream; one that was compacted before it
            # was read is gone.
            .option("ignoreCorruptFiles", "true")
            .option("ignoreMissingFiles", "true")
        )
        if is_once:
            reader = reader.option("pathGlobFilter", RECORDED)
        rows = reader.parquet(f"{lake}/{table.name}")
        # Clocks jump: rows outside of their hour count nowhere, as in the batch.
        return rows.where("unix_micros(ts) div 3600000000 = CAST(unix_date(date) AS BIGINT) * 24 + hour")

    def _start(
        self, name: str, frame: DataFrame, act: Callable[[DataFrame, int], None], available_now: bool
    ) -> None:
        writer = (
            frame.writeStream.queryName(f"tidegate-{name}-{id(self)}")
            .outputMode("append")
            .option("checkpointLocation", f"{self._settings.folder}/{name}")
            .foreachBatch(lambda rows, batch: self._in_turn(act, rows, batch))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._settings.every} seconds")
        self.queries[name] = writer.start()

    def _in_turn(self, act: Callable[[DataFrame, int], None], rows: DataFrame, batch: int) -> None:
        """One query at a time touches the findings: a table that is being replaced cannot be read."""
        with self._turn:
            act(rows, batch)

    def _on_traffic(self, rows: DataFrame, _batch: int) -> None:
        hours = [
            datetime.combine(row.date, datetime.min.time(), UTC) + timedelta(hours=row.hour)
            for row in rows.select("date", "hour").distinct().collect()
        ]
        if not hours:
            return
        began = time.monotonic()
        pipeline = self._settings.pipeline
        width = timedelta(hours=pipeline.gap_hours)
        # Whole parts, for their histograms of gaps are computed from all of their hours.
        since, until = _floor(min(hours), width), _floor(max(hours), width) + width
        attempt(self._spark, replace(pipeline, since=since, until=until), "hourly", [])
        self._learn()
        version = write_policy(self._spark, pipeline)
        self._on_policy(version, time.monotonic() - began)

    def _learn(self) -> None:
        """As the jobs of the same names, but that a change which the stream sees counts at once."""
        pipeline = self._settings.pipeline
        clients = io.read_aggregate(self._spark, pipeline, "clients")
        gaps = io.read_aggregate(self._spark, pipeline, "gaps")
        slow = find_changes(self._spark, pipeline, clients)
        live = io.read_finding(self._spark, pipeline, LIVE_CHANGES).where("NOT is_over")
        names = ("client_id", "changed_at", "ended_at")
        both = slow.select(*names).unionByName(live.select(*names))
        is_open = F.col("ended_at").isNull()
        # One that is not over goes before one that is.
        known = both.groupBy("client_id").agg(
            F.coalesce(F.min(F.when(is_open, F.col("changed_at"))), F.min("changed_at")).alias("changed_at"),
            F.when(~F.max(is_open), F.max("ended_at")).alias("ended_at"),
        )
        lasting = clients.where(io.is_lasting())
        found = baselines.baselines(lasting, gaps, known, pipeline.limit_factor, pipeline.gap_hours)
        io.write_finding(found, pipeline, schema.BASELINES)
        members.main(self._spark, pipeline)

    def _on_routes(self, rows: DataFrame, batch: int) -> None:
        self._upsert(rows, batch, schema.ROUTES, "mac", "heard_at")

    def _on_changes(self, rows: DataFrame, batch: int) -> None:
        rows = rows.withColumn("ended_at", F.lit(None).cast("timestamp"))
        self._upsert(rows, batch, LIVE_CHANGES, "client_id", "changed_at", "is_over")

    def _upsert(self, rows: DataFrame, batch: int, table: Table, key: str, *order: str) -> None:
        """Of each key the row that is last in `order`, from the table before this batch and from its rows.

        Every batch has a copy of the table to itself, complete or not counted; so one that a crash cut off is done
        again from the same start. The finding is made of it, and the copy before the last is deleted.
        """
        new = rows.persist()
        try:
            if new.isEmpty():
                return
            folder = f"{self._settings.folder}/tables/{table.name}"
            earlier = [number for number in _complete(folder) if number < batch]
            wanted = spark_schema(table)
            parts = [new.select(*wanted.names)]
            if earlier:
                parts.append(self._spark.read.schema(wanted).parquet(f"{folder}/batch-{earlier[-1]}"))
            newest = Window.partitionBy(key).orderBy(*(F.col(name).desc() for name in order))
            both = io.union_all(parts).withColumn("_n", F.row_number().over(newest))
            kept = both.where("_n = 1").drop("_n").coalesce(1)
            kept.write.mode("overwrite").parquet(f"{folder}/batch-{batch}")
            made = self._spark.read.schema(wanted).parquet(f"{folder}/batch-{batch}")
            io.write_finding(made, self._settings.pipeline, table)
            filesystem, root = open_filesystem(folder)
            for number in earlier[:-1]:
                filesystem.delete_dir(f"{root}/batch-{number}")
        finally:
            new.unpersist()


def _complete(folder: str) -> list[int]:
    """Batches whose copy was written to its end, in order."""
    filesystem, root = open_filesystem(folder)
    found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    numbers = [
        int(each.base_name.removeprefix("batch-")) for each in found if each.base_name.startswith("batch-")
    ]
    return sorted(
        number for number in numbers if filesystem.get_file_info(f"{root}/batch-{number}/_SUCCESS").is_file
    )


def _floor(moment: datetime, width: timedelta) -> datetime:
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (moment - day) // width * width


def has_lake(lake: str) -> bool:
    filesystem, root = open_filesystem(lake)
    return bool(filesystem.get_file_info(root).type == fs.FileType.Directory)
