"""What is wrong with the input: what the inventory found, what nodes lost, hours without a row, clocks that jumped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.inventory import Issue, take_inventory
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.types import spark_schema

HOLE_WINDOWS = 3  # windows of a node's state that may be missing without a word
HOUR = timedelta(hours=1)


def main(
    spark: SparkSession, settings: PipelineSettings, issues: Sequence[Issue] = (), now: datetime | None = None
) -> None:
    found = [*issues, *_hours(spark, settings, now or datetime.now(UTC)), *_losses(spark, settings)]
    inventory = take_inventory(settings.lake, schema.LOAD, settings.since, settings.until)
    if inventory.files:
        found.extend(_collected(jumps(io.read_raw(spark, settings.lake, inventory))))
    frame = spark.createDataFrame([astuple(each) for each in found], spark_schema(tables.QUALITY))
    io.write_finding(frame.orderBy("kind", "table", "subject"), settings, tables.QUALITY)


def jumps(load: DataFrame) -> DataFrame:
    """Rows of `tables.QUALITY`: a node's state is told once a window, so what is missing or overlaps was no time."""
    ordered = Window.partitionBy("node", "run").orderBy("ts")
    micros = F.expr("unix_micros(ts)")
    before = F.lag(micros + F.col("window_us")).over(ordered)
    width = F.greatest(F.col("window_us"), F.lag("window_us").over(ordered))
    rows = load.select("node", "run", "ts", (micros - before).alias("hole"), width.alias("width"))
    is_back = F.col("hole") < -F.col("width") / 2
    kind = F.when(is_back, "clock-back").otherwise("hole")
    seconds = F.round(F.abs(F.col("hole")) / 1e6, 1)
    return rows.where(
        (F.col("hole") > F.greatest(F.col("width") * HOLE_WINDOWS, F.lit(1_000_000))) | is_back
    ).select(
        kind.alias("kind"),
        F.lit("load").alias("table"),
        F.concat_ws(" ", "node", F.col("ts").cast("string")).alias("subject"),
        F.lit(1).cast("long").alias("count"),
        F.concat(
            F.format_number(seconds, 1),
            F.when(is_back, " s were told twice: the clock was set back").otherwise(
                " s are not told: the clock was set forward, or rows were lost"
            ),
        ).alias("detail"),
    )


def _collected(frame: DataFrame) -> list[Issue]:
    rows = frame.orderBy("subject").limit(1_000).collect()
    return [
        Issue(kind=r["kind"], table=r["table"], subject=r["subject"], count=r["count"], detail=r["detail"])
        for r in rows
    ]


def _hours(spark: SparkSession, settings: PipelineSettings, now: datetime) -> list[Issue]:
    """Hours between the first and the last of which nothing was recorded, and those that are still being written."""
    hours = io.read_aggregate(spark, settings, "nodes").select(io.moment().alias("at")).distinct()
    known = {
        row.at.replace(tzinfo=UTC)
        for row in hours.select(F.col("at").cast("timestamp_ntz").alias("at")).collect()
    }
    found = []
    at = min(known, default=now)
    while known and at <= max(known):
        if at not in known:
            found.append(
                Issue(
                    kind="empty-hour", table="publish", subject=f"{at:%Y-%m-%dT%H}", count=1, detail="no rows"
                )
            )
        at += HOUR
    grace = timedelta(seconds=settings.grace_seconds)
    found.extend(
        Issue(
            kind="open-hour",
            table="publish",
            subject=f"{each:%Y-%m-%dT%H}",
            count=1,
            detail="may still be written: the next run computes it again",
        )
        for each in sorted(known)
        if each + HOUR + grace > now
    )
    return found


def _losses(spark: SparkSession, settings: PipelineSettings) -> list[Issue]:
    at = F.date_format(io.moment(), "yyyy-MM-dd'T'HH")
    lost = (
        io.read_aggregate(spark, settings, "nodes").where("lost > 0").select("node", at.alias("at"), "lost")
    )
    found = [
        Issue(
            kind="lost",
            table="publish",
            subject=f"{row.node} {row.at}",
            count=row.lost,
            detail="messages that the recorder dropped and counted",
        )
        for row in lost.orderBy("at", "node").collect()
    ]
    negative = io.read_aggregate(spark, settings, "clients").where("negative_gaps > 0")
    by_hour = negative.groupBy(at.alias("at")).agg(F.sum("negative_gaps").alias("n")).orderBy("at").collect()
    found.extend(
        Issue(
            kind="negative-gap",
            table="publish",
            subject=row.at,
            count=row.n,
            detail="gaps below zero: left out of all sums",
        )
        for row in by_hour
    )
    return found
