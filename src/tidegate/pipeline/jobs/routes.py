"""The best gateway of each device, and gateways that died."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import routes


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    beacons = io.read_aggregate(spark, settings, "beacons")
    age = settings.route_age_slots
    io.write_finding(routes.routes(beacons, settings.hysteresis_db, age), settings, schema.ROUTES)
    found = io.read_finding(spark, settings, schema.ROUTES)
    io.write_finding(routes.gateways(beacons, found, age), settings, tables.GATEWAYS)
