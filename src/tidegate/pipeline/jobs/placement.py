"""Which edge should serve which topic."""

from __future__ import annotations

from dataclasses import astuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate import schema
from tidegate.pipeline import io
from tidegate.pipeline.settings import Edge, PipelineSettings
from tidegate.pipeline.transforms.placement import Demand, plan
from tidegate.pipeline.types import spark_schema


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    topics = io.read_finding(spark, settings, schema.TOPICS).select("topic", "rate", "bytes_rate")
    sent = io.read_aggregate(spark, settings, "fanout")
    hours = io.read_aggregate(spark, settings, "topics").select("date", "hour").distinct().count()
    out = sent.groupBy("topic").agg((F.sum("bytes") / (3600.0 * max(1, hours))).alias("out_rate"))
    # A topic of which no delivery was recorded counts as one that has a subscriber.
    rows = (
        topics.join(out, "topic", "left")
        .withColumn("out_rate", F.coalesce("out_rate", "bytes_rate"))
        .collect()
    )
    demands = [Demand(topic=row.topic, rate=row.rate, uplink_bits=8.0 * row.out_rate) for row in rows]
    pairs = io.read_finding(spark, settings, schema.CORRELATIONS).collect()
    rho = {(row.topic_a, row.topic_b): row.rho for row in pairs}
    edges = settings.edges or _nodes(spark, settings)
    placed = [astuple(each) for each in plan(demands, edges, rho)]
    frame = spark.createDataFrame(placed, spark_schema(schema.PLACEMENT))
    io.write_finding(frame, settings, schema.PLACEMENT)


def _nodes(spark: SparkSession, settings: PipelineSettings) -> tuple[Edge, ...]:
    """Without capacities: the nodes that recorded something, all alike."""
    names = io.read_aggregate(spark, settings, "nodes").select("node").distinct().orderBy("node").collect()
    return tuple(Edge(name=row.node) for row in names)
