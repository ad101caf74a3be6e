"""What is normal for each publisher, and whose behaviour changed."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import baselines, changes, cohorts


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    clients = io.read_aggregate(spark, settings, "clients")
    gaps = io.read_aggregate(spark, settings, "gaps")
    found = find_changes(spark, settings, clients)
    io.write_finding(
        baselines.baselines(
            clients.where(io.is_lasting()), gaps, found, settings.limit_factor, settings.gap_hours
        ),
        settings,
        schema.BASELINES,
    )


def find_changes(spark: SparkSession, settings: PipelineSettings, clients: DataFrame) -> DataFrame:
    """Writes `tables.CHANGES`, and gives it."""
    # What is left out here did tell that its hours were recorded.
    grid = cohorts.grid(clients).where(io.is_lasting()).persist(StorageLevel.MEMORY_AND_DISK)
    tried = changes.tried(grid).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        io.write_finding(changes.judged(tried, settings.change_ratio), settings, tables.CHANGES)
    finally:
        tried.unpersist()
        grid.unpersist()
    return io.read_finding(spark, settings, tables.CHANGES)
