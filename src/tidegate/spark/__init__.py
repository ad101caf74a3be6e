"""MQTT for Spark: `from tidegate.spark import register; register(spark)`, then `format("mqtt")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("mqtt")` known to this session, for reading and writing, batch and streaming."""
    from tidegate.spark.datasource import MqttDataSource

    spark.dataSource.register(MqttDataSource)
