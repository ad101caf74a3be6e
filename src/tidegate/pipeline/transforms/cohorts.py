"""Clients by hour, silent hours included, and what each hour was for those who live by the same clock."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidegate.pipeline.io import moment

SHAPE_LEAST: Final = 10.0  # messages an hour of a client that may tell what its cohort does
COHORT_LEAST: Final = 5  # such clients that make a cohort
SHAPE_FLOOR: Final = 0.02
GAPS_LEAST: Final = 20  # gaps of an hour that tell how regular it was


def cohort(topic: Column) -> Column:
    """Who is likely to live by the same clock: the first level of the topic, the second if that is empty."""
    levels = F.split(topic, "/")
    return F.when(levels[0] != "", levels[0]).otherwise(F.coalesce(F.get(levels, F.lit(1)), F.lit("")))


def grid(clients: DataFrame) -> DataFrame:
    """A row for each client and hour that was recorded; hours in which it was silent have 0.

    Columns: client_id, topic, cohort, h (0, 1, … without gaps), hour, at, n, its mean over all hours, variation (null
    if it cannot be told).
    All hours of a client are made in one place, by a look-up: nothing is shuffled but once by client.
    """
    hours = (
        clients.select("date", "hour")
        .distinct()
        .select(
            "date",
            "hour",
            (F.row_number().over(Window.orderBy("date", "hour")) - 1).alias("h"),
            F.count("*").over(Window.partitionBy(F.lit(0))).alias("hours"),
        )
    )
    square = F.col("gap_sum_us") * F.col("gap_sum_us")
    variation = F.try_divide(F.col("gaps") * F.col("gap_squares"), square) - 1.0
    told = (F.col("gaps") >= GAPS_LEAST) & (F.col("gap_sum_us") > 0)
    seen = F.struct(
        F.col("messages").cast("double").alias("n"),
        F.when(told, F.log(F.greatest(F.lit(0.0), variation) + 0.01)).alias("variation"),
    )
    of_client = (
        clients.join(F.broadcast(hours), ["date", "hour"])
        .groupBy("client_id")
        .agg(
            F.max(F.struct("messages", "topic"))["topic"].alias("topic"),
            F.sum("messages").alias("messages"),
            F.map_from_entries(F.collect_list(F.struct("h", seen))).alias("seen"),
        )
    )
    at = moment().alias("at")
    every = F.broadcast(hours.select("h", "hour", "hours", at))
    found = F.try_element_at("seen", F.col("h"))
    return (
        of_client.withColumn("cohort", cohort(F.col("topic")))
        .crossJoin(every)
        .withColumn("found", found)
        .select(
            "client_id",
            "topic",
            "cohort",
            "h",
            "hour",
            "at",
            F.coalesce("found.n", F.lit(0.0)).alias("n"),
            (F.col("messages") / F.col("hours")).alias("mean"),
            F.col("found.variation").alias("variation"),
        )
    )


def with_shape(grid: DataFrame) -> DataFrame:
    """Adds `s`: what the hour was for its cohort, 1 on average. Goes over the grid several times."""
    told = grid.where(F.col("mean") >= SHAPE_LEAST).select(
        "cohort", "h", (F.col("n") / F.col("mean")).alias("share")
    )
    own = told.groupBy("cohort", "h").agg(F.median("share").alias("own"), F.count("*").alias("tellers"))
    all_of_them = told.groupBy("h").agg(F.median("share").alias("everybody"))
    shaped = (
        grid.join(F.broadcast(own), ["cohort", "h"], "left")
        .join(F.broadcast(all_of_them), "h", "left")
        .withColumn("s", F.when(F.col("tellers") >= COHORT_LEAST, F.col("own")).otherwise(F.col("everybody")))
        .drop("own", "tellers", "everybody")
    )
    return shaped.withColumn("s", F.greatest(F.lit(SHAPE_FLOOR), F.coalesce("s", F.lit(1.0))))
