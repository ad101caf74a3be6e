"""Everything a report shows, as small lists: aggregates and findings only, whatever the size of the lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.settings import PipelineSettings
from tidegate.schema import Table

MOST = 200  # rows of a list: a page is read by people
TOPICS_SHOWN = 8

Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Facts:
    """Rows by subject; times are UTC."""

    lake: str
    made_at: datetime
    traffic: list[Row] = field(default_factory=list)  # at, node, messages, bytes, publishers, lost
    loads: list[Row] = field(default_factory=list)
    topics: list[Row] = field(default_factory=list)
    topic_hours: list[Row] = field(default_factory=list)
    correlations: list[Row] = field(default_factory=list)
    forecasts: Row = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    change_counts: list[Row] = field(default_factory=list)
    publishers: Row = field(default_factory=dict)
    gate: list[Row] = field(default_factory=list)
    queues: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    placement: list[Row] = field(default_factory=list)
    gateways: list[Row] = field(default_factory=list)
    routes: Row = field(default_factory=dict)
    latency: list[Row] = field(default_factory=list)
    outcomes: list[Row] = field(default_factory=list)
    control: list[Row] = field(default_factory=list)
    replayed: list[Row] = field(default_factory=list)
    disagreements: list[Row] = field(default_factory=list)
    quality: list[Row] = field(default_factory=list)
    quality_counts: list[Row] = field(default_factory=list)


def gather(spark: SparkSession, settings: PipelineSettings, made_at: datetime) -> Facts:
    def rows(frame: Any, most: int = MOST) -> list[Row]:
        return [row.asDict(recursive=True) for row in io.plain(frame.limit(most)).collect()]

    def finding(table: Table, *order: Any, most: int = MOST) -> list[Row]:
        frame = io.read_finding(spark, settings, table)
        return rows(frame.orderBy(*order) if order else frame, most)

    def hourly(name: str) -> Any:
        return io.read_aggregate(spark, settings, name).withColumn("at", io.moment())

    topics = io.read_finding(spark, settings, schema.TOPICS)
    busiest = topics.orderBy(F.desc("rate"), "topic").limit(TOPICS_SHOWN)
    shown = hourly("topics").join(F.broadcast(busiest.select("topic")), "topic", "left_semi")
    changes = io.read_finding(spark, settings, tables.CHANGES)
    quality = io.read_finding(spark, settings, tables.QUALITY)
    routes = io.read_finding(spark, settings, schema.ROUTES)
    baselines = io.read_finding(spark, settings, schema.BASELINES)
    forecasts = io.read_finding(spark, settings, tables.FORECASTS)
    gate = (
        hourly("gate")
        .groupBy("client_id", "state")
        .agg(
            *(F.sum(name).alias(name) for name in ("holds", "held_seconds", "refused")),
            F.max("rate_max").alias("rate_max"),
            F.max("trained_max").alias("trained_max"),
        )
    )
    queues = (
        hourly("queues")
        .groupBy("client_id")
        .agg(
            (F.sum("qd_sum") / F.sum("samples")).alias("qd_mean"),
            F.max("qd_max").alias("qd_max"),
            F.sum("blocked").alias("blocked"),
            F.sum("dropped").alias("dropped"),
        )
    )
    outcomes = (
        hourly("rpc_outcomes")
        .groupBy("outcome")
        .agg(F.sum("count").alias("count"), F.sum("retries").alias("retries"))
    )
    return Facts(
        lake=settings.lake,
        made_at=made_at,
        traffic=rows(hourly("nodes").orderBy("at", "node"), 10_000),
        loads=rows(hourly("loads").orderBy("at", "node"), 10_000),
        topics=rows(busiest.drop("profile")),
        topic_hours=rows(shown.select("at", "topic", "messages").orderBy("topic", "at"), 10_000),
        correlations=finding(schema.CORRELATIONS, F.desc("rho"), "topic_a", "topic_b"),
        forecasts=rows(
            forecasts.agg(
                F.count("*").alias("topics"),
                F.sum("error").alias("error"),
                F.sum("naive_error").alias("naive_error"),
                F.avg("covered").alias("covered"),
            )
        )[0],
        changes=rows(changes.orderBy(F.desc("score"), "client_id")),
        change_counts=rows(changes.groupBy("kind").count().orderBy(F.desc("count"), "kind")),
        publishers=rows(
            baselines.agg(
                F.count("*").alias("publishers"),
                F.sum("rate").alias("rate"),
                F.percentile("rate", F.array(F.lit(0.1), F.lit(0.5), F.lit(0.9))).alias("rates"),
            )
        )[0],
        gate=rows(gate.orderBy(F.desc("held_seconds"), F.desc("refused"), "client_id")),
        queues=rows(queues.orderBy(F.desc("qd_max"), "client_id")),
        members=finding(schema.POLICY_MEMBERS, "group", "client_id"),
        placement=rows(
            io.read_finding(spark, settings, schema.PLACEMENT)
            .groupBy("edge")
            .agg(
                F.count("*").alias("topics"),
                F.sum("rate").alias("rate"),
                F.max("util_up").alias("util_up"),
                F.max("util_match").alias("util_match"),
            )
            .orderBy("edge")
        ),
        gateways=finding(tables.GATEWAYS, F.desc("is_dead"), "gw"),
        routes=rows(
            routes.agg(
                F.count("*").alias("devices"),
                F.avg("flaps").alias("flaps"),
                F.max("flaps").alias("flaps_max"),
            )
        )[0],
        latency=finding(tables.RPC_LATENCY, "at", "hop", most=10_000),
        outcomes=rows(outcomes.orderBy(F.desc("count"), "outcome")),
        control=finding(schema.CONTROL, "client_id"),
        replayed=finding(tables.REPLAYED, "run", "source"),
        disagreements=finding(tables.DISAGREEMENTS, "run", "source", "seq"),
        quality=rows(quality.orderBy("kind", "table", "subject")),
        quality_counts=rows(
            quality.groupBy("kind", "table")
            .agg(F.count("*").alias("cases"), F.sum("count").alias("count"))
            .orderBy("kind", "table")
        ),
    )
