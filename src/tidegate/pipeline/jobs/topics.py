"""Rates, profiles and forecasts of topics, and which of them burst together."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import topics


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    hours = io.read_aggregate(spark, settings, "topics")
    seconds = io.read_aggregate(spark, settings, "seconds").where(io.is_lasting())
    io.write_finding(topics.correlations(seconds, settings.correlated), settings, schema.CORRELATIONS)
    # At most a few thousand pairs: what hangs together is found here.
    pairs = [
        (row.topic_a, row.topic_b) for row in io.read_finding(spark, settings, schema.CORRELATIONS).collect()
    ]
    groups = spark.createDataFrame(list(topics.burst_groups(pairs)), "topic string, burst_group bigint")
    # What is left out here did tell that its hours were recorded.
    grid = topics.grid(hours).where(io.is_lasting())
    made = topics.forecasts(grid).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        io.write_finding(topics.topic_policy(hours, made, groups), settings, schema.TOPICS)
        io.write_finding(topics.forecast_quality(made), settings, tables.FORECASTS)
    finally:
        made.unpersist()
