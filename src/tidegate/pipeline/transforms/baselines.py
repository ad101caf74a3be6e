"""What is normal for each publisher: rate, dispersion, suggested quota and rank (spec 1), from aggregates."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidegate.pipeline.io import moment
from tidegate.pipeline.transforms import histograms

RATE_QUANTILE: Final = 0.9  # of its hours: a day's mean would call every busy hour too fast
SHORT: Final = 600.0  # seconds of an hour below which a client was only shortly there
LEAST_MESSAGES: Final = 16  # that tell a rate even so: as many as the broker trains on
LEAST_LIMIT: Final = 1.0  # messages per second that nobody's quota is below
MAD_TO_DEVIATION: Final = 1.4826  # for a normal distribution, as the broker's training has it
DISPERSION_MAX: Final = 100.0


def baselines(
    clients: DataFrame, gaps: DataFrame, changes: DataFrame, limit_factor: float = 4.0, gap_hours: int = 6
) -> DataFrame:
    """Rows of `schema.BASELINES`. Hours of a change teach nothing: a flood must not become a habit by lasting."""
    normal = _without(changes, clients, "hour", 1).where("messages > 0")
    seen = F.expr("(unix_micros(last) - unix_micros(first)) / 1e6")
    # A part of an hour counts by the time that it was there. A few messages in no time are no rate.
    messages = F.col("messages")
    shortly = F.greatest(F.lit(0.001), seen) * F.try_divide(messages, messages - 1)
    covered = (
        F.when(seen >= SHORT, F.least(F.lit(3600.0), seen * 1.1))
        .when(messages >= LEAST_MESSAGES, shortly)
        .otherwise(F.lit(SHORT))
    )
    hourly = messages / covered
    rates = normal.groupBy("client_id").agg(
        F.percentile(hourly, F.lit(RATE_QUANTILE)).alias("rate"),
        F.max(hourly).alias("peak"),
        F.sum("messages").alias("messages"),
        F.max(F.when(F.col("ended_at").isNull(), F.col("changed_at"))).alias("changed_at"),
    )
    calm = _without(changes, gaps, "part", gap_hours)
    spread = histograms.collect(calm, "client_id").select(
        "client_id", histograms.PAIRS, histograms.quantile(0.5).alias("median_us")
    )
    spread = spread.select(
        "client_id", "median_us", histograms.median_deviation(F.col("median_us")).alias("mad_us")
    )
    relative = F.try_divide(F.lit(MAD_TO_DEVIATION) * F.col("mad_us"), F.col("median_us"))
    dispersion = F.when(F.col("median_us") > 0, F.least(F.lit(DISPERSION_MAX), relative * relative))
    return (
        rates.join(spread, "client_id", "left")
        .withColumn("dispersion", F.coalesce(dispersion, F.lit(0.0)))
        .withColumn("limit", F.greatest(F.lit(LEAST_LIMIT), F.col("peak") * limit_factor))
        # Everybody is ranked among everybody, hence one partition; a row is small.
        .withColumn("rank", F.rank().over(Window.orderBy("rate")).cast("long"))
    )


def _without(changes: DataFrame, rows: DataFrame, part: str, hours: int) -> DataFrame:
    """Rows of parts of a day, of so many hours each, that have none of a change in them; with its two times."""
    begin = moment(part, hours)
    end = begin + F.expr(f"INTERVAL {hours} HOURS")
    known = F.broadcast(changes.select("client_id", "changed_at", "ended_at"))
    return rows.join(known, "client_id", "left").where(
        F.col("changed_at").isNull() | (end <= F.col("changed_at")) | (begin >= F.col("ended_at"))
    )
