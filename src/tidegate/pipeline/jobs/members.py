"""How fast members of shared groups are."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate import schema
from tidegate.pipeline import io
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import members


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    hours = io.read_aggregate(spark, settings, "members")
    io.write_finding(members.members(hours), settings, schema.POLICY_MEMBERS)
