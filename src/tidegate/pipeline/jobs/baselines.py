"""What is normal for each publisher, and whose behaviour changed."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import baselines, changes


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    clients = io.read_aggregate(spark, settings, "clients")
    gaps = io.read_aggregate(spark, settings, "gaps")
    tried = changes.tried(clients).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        io.write_finding(changes.judged(tried, settings.change_ratio), settings, tables.CHANGES)
    finally:
        tried.unpersist()
    found = io.read_finding(spark, settings, tables.CHANGES)
    io.write_finding(
        baselines.baselines(clients, gaps, found, settings.limit_factor), settings, schema.BASELINES
    )
