"""Where jobs read and write: raw tables through an inventory, aggregates and findings by their names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidegate.pipeline.inventory import Inventory, open_filesystem
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.tables import AGGREGATES, GAPS
from tidegate.pipeline.types import HOUR_PARTITION, PART_PARTITION, conform, spark_schema
from tidegate.private import make_folder
from tidegate.schema import Table

STATE = "state.json"
PROBES = "tidegate/probe/"  # below it consoles publish to themselves


def read_raw(spark: SparkSession, lake: str, inventory: Inventory) -> DataFrame:
    """Rows of the lake with `date` and `hour`, null where an older file lacks a column; none outside of their hour."""
    table = inventory.table
    schema = spark_schema(table, HOUR_PARTITION)
    scheme = lake.partition("://")[0] + "://" if "://" in lake else ""
    base = f"{lake.rstrip('/')}/{table.name}"
    frames = []
    for is_displaced in (False, True):
        paths = [_address(each.path, scheme) for each in inventory.files if each.is_displaced is is_displaced]
        if not paths:
            continue
        frame = spark.read.schema(schema).option("basePath", base).parquet(*paths)
        if is_displaced:
            index = F.expr("unix_micros(ts) div 3600000000")
            frame = frame.where(index == F.expr("CAST(unix_date(date) AS BIGINT) * 24 + hour"))
        frames.append(frame)
    if not frames:
        return spark.createDataFrame([], schema)
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _address(path: str, scheme: str) -> str:
    return f"{scheme}{path}"


def partition_fields(table: Table) -> tuple[Any, ...]:
    return PART_PARTITION if table is GAPS else HOUR_PARTITION


def aggregate_path(settings: PipelineSettings, table: Table) -> str:
    return f"{settings.out_folder}/hourly/{table.name}"


def write_aggregate(frame: DataFrame, settings: PipelineSettings, table: Table) -> None:
    """Replaces the partitions that the frame has, and no other: doing it twice is doing it once."""
    names = [each.name for each in partition_fields(table)]
    out = conform(frame, table, names).repartition(*names)
    # By option, not by configuration: in a session of somebody else the default would delete all other hours.
    writer = out.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*names).parquet(aggregate_path(settings, table))


def read_aggregate(spark: SparkSession, settings: PipelineSettings, name: str) -> DataFrame:
    """Aggregates within the time of the settings; empty if there are none."""
    table = AGGREGATES[name]
    fields = partition_fields(table)
    schema = spark_schema(table, fields)
    path = aggregate_path(settings, table)
    filesystem, inside = open_filesystem(path)
    if filesystem.get_file_info(inside).type != fs.FileType.Directory:
        return spark.createDataFrame([], schema)
    frame = spark.read.schema(schema).parquet(path)
    width = settings.gap_hours if table is GAPS else 1
    return _within(frame, fields[1].name, width, settings.since, settings.until)


def _within(
    frame: DataFrame, name: str, width: int, since: datetime | None, until: datetime | None
) -> DataFrame:
    """Both columns are partitions, so this decides which folders are read."""
    for bound, is_from in ((since, True), (until, False)):
        if bound is None:
            continue
        place = (F.col("date"), F.col(name))
        date, number = F.lit(f"{bound:%Y-%m-%d}").cast("date"), bound.hour // width
        same = (
            place[1] >= number
            if is_from
            else place[1] < number + (bound.hour % width > 0 or bound.minute > 0)
        )
        beyond = place[0] > date if is_from else place[0] < date
        frame = frame.where(beyond | ((place[0] == date) & same))
    return frame


def moment(name: str = "hour", hours: int = 1) -> Any:
    """Beginning of the hour of a partition, or of its part of so many hours, as a timestamp column."""
    return F.expr(f"timestamp_seconds(CAST(unix_date(date) AS BIGINT) * 86400 + {name} * {hours * 3600})")


def is_lasting() -> Column:
    """Of rows with a topic: whether there is something to learn of their client, or of the topic.

    A console measures how long a message takes it, as a client and on a topic that have other names each time it is
    started: what was learnt of them would be about nobody, and their end a client that fell silent.
    """
    return ~F.col("topic").startswith(PROBES)


def plain(frame: DataFrame) -> DataFrame:
    """The same with times as UTC without a zone: `collect` would turn them into the time of this machine."""
    return frame.select(
        *(
            F.col(f"`{each.name}`").cast("timestamp_ntz").alias(each.name)
            if isinstance(each.dataType, T.TimestampType)
            else F.col(f"`{each.name}`")
            for each in frame.schema.fields
        )
    )


def use_utc(spark: SparkSession) -> None:
    """In a session of somebody else, too: hours of the lake are UTC."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def finding_path(settings: PipelineSettings, name: str) -> str:
    return f"{settings.out_folder}/findings/{name}"


def write_finding(frame: DataFrame, settings: PipelineSettings, table: Table) -> None:
    """Replaces the whole table by one file: findings and policies are small."""
    conform(frame, table).coalesce(1).write.mode("overwrite").option(
        "partitionOverwriteMode", "static"
    ).parquet(finding_path(settings, table.name))


def read_finding(spark: SparkSession, settings: PipelineSettings, table: Table) -> DataFrame:
    schema = spark_schema(table)
    path = finding_path(settings, table.name)
    filesystem, inside = open_filesystem(path)
    if filesystem.get_file_info(inside).type != fs.FileType.Directory:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(path)


def read_state(settings: PipelineSettings) -> dict[str, dict[str, str]]:
    """What each hour of each table was computed from, by the run before; empty if there was none."""
    filesystem, root = open_filesystem(settings.out_folder)
    try:
        with filesystem.open_input_file(f"{root}/{STATE}") as source:
            found: dict[str, dict[str, str]] = json.loads(source.read())
            return found
    except (FileNotFoundError, OSError, pa.ArrowException, json.JSONDecodeError):
        return {}  # then everything is computed again, which is always right


def create_folder(filesystem: fs.FileSystem, path: str) -> None:
    """For this user alone, where that can be said."""
    if isinstance(filesystem, fs.LocalFileSystem):
        make_folder(Path(path))
    else:
        filesystem.create_dir(path, recursive=True)


def write_state(settings: PipelineSettings, state: dict[str, dict[str, str]]) -> None:
    filesystem, root = open_filesystem(settings.out_folder)
    create_folder(filesystem, root)
    with filesystem.open_output_stream(f"{root}/_{STATE}") as out:
        out.write(json.dumps(state, indent=0, sort_keys=True).encode())
    filesystem.move(f"{root}/_{STATE}", f"{root}/{STATE}")


def union_all(frames: Iterable[DataFrame]) -> DataFrame:
    first, *rest = frames
    for each in rest:
        first = first.unionByName(each)
    return first
