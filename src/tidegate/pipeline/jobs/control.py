"""Loss rates of clients under active control, and what to set."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate import schema
from tidegate.pipeline import io
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import control


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    hours = io.read_aggregate(spark, settings, "control")
    io.write_finding(control.control(hours, settings.target_staleness), settings, schema.CONTROL)
