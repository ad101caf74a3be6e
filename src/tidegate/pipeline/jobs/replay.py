"""The broker's online verdicts, ranks and choices computed again, and every disagreement.

Events of a run depend on all before them, so a run is one stream through one Python worker, in order and without being
held in memory; runs are independent. Needs rows of level full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.inventory import take_inventory
from tidegate.pipeline.replay import gate, members
from tidegate.pipeline.replay.record import Findings
from tidegate.pipeline.settings import PipelineSettings

OUT: Final = T.StructType(
    [
        T.StructField("run", T.StringType()),
        T.StructField("source", T.StringType()),
        T.StructField("seq", T.LongType()),
        T.StructField("kind", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("client_id", T.StringType()),
        T.StructField("recorded", T.StringType()),
        T.StructField("computed", T.StringType()),
        T.StructField("events", T.LongType()),  # of the run, in the one row that has it
        T.StructField("compared", T.LongType()),
        T.StructField("note", T.StringType()),
    ]
)
Replay = gate.GateReplay | members.MemberReplay
SOURCES: Final[tuple[tuple[schema.Table, tuple[str, ...], Callable[[], Replay]], ...]] = (
    (schema.CHECK, gate.COLUMNS, gate.GateReplay),
    (schema.MEMBER, members.COLUMNS, members.MemberReplay),
)


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    frames = []
    for table, columns, make in SOURCES:
        inventory = take_inventory(settings.lake, table, settings.since, settings.until).at_level("full")
        raw = io.read_raw(spark, settings.lake, inventory)
        frames.append(replayed(raw, table.name, columns, make))
    found = io.union_all(frames).persist()
    try:
        counts = found.groupBy("run", "source").agg(
            F.max("events").alias("events"),
            F.max("compared").alias("compared"),
            F.sum(F.col("seq").isNotNull().cast("long")).alias("disagreements"),
            F.max("note").alias("note"),
        )
        io.write_finding(found.where("seq IS NOT NULL"), settings, tables.DISAGREEMENTS)
        io.write_finding(counts, settings, tables.REPLAYED)
    finally:
        found.unpersist()


def replayed(raw: DataFrame, source: str, columns: tuple[str, ...], make: Callable[[], Replay]) -> DataFrame:
    """A row for each disagreement, and one with sums for each run."""
    events = raw.where("seq IS NOT NULL").select("run", *columns).dropDuplicates(["run", "seq"])
    ordered = events.repartition("run").sortWithinPartitions("run", "seq")

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return _replay(batches, source, make)

    return ordered.mapInArrow(work, OUT)


def _replay(batches: Iterator[Any], source: str, make: Callable[[], Replay]) -> Iterator[Any]:
    """Spark's side: batches of events in order, whole runs after each other."""
    run: str | None = None
    replay = make()
    for batch in batches:
        names = batch.schema.names
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            row = dict(zip(names, values, strict=True))
            if row["run"] != run:
                if run is not None:
                    yield _rows(run, source, replay.findings)
                run, replay = row["run"], make()
            replay.feed(row)
    if run is not None:
        yield _rows(run, source, replay.findings)


def _rows(run: str, source: str, findings: Findings) -> Any:
    import pyarrow as pa

    common: dict[str, Any] = {"run": run, "source": source}
    rows: list[dict[str, Any]] = [
        common
        | {
            "seq": each.seq,
            "kind": each.kind,
            "name": each.name,
            "client_id": each.client_id,
            "recorded": each.recorded,
            "computed": each.computed,
        }
        for each in findings.differences
    ]
    rows.append(
        common | {"events": findings.events, "compared": findings.compared, "note": "; ".join(findings.notes)}
    )
    numbers = ("seq", "events", "compared")
    types = [(each.name, pa.int64() if each.name in numbers else pa.string()) for each in OUT.fields]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(types))
