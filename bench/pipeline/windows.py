"""The straightforward way, to show the gain: gaps by a window over all rows, percentiles by sorting.

This is what one writes when the recorder has no `gap_us`: every row is shuffled to its client and sorted by time.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def client_gaps(publish: DataFrame) -> DataFrame:
    """Rate, median gap and its deviation of each client, exactly."""
    ordered = Window.partitionBy("client_id").orderBy("ts")
    before = F.lag("ts").over(ordered)
    gaps = publish.select("client_id", "ts", (F.expr("unix_micros(ts)") - F.unix_micros(before)).alias("gap"))
    medians = gaps.groupBy("client_id").agg(
        F.count("*").alias("messages"),
        F.min("ts").alias("first"),
        F.max("ts").alias("last"),
        F.percentile("gap", F.lit(0.5)).alias("median"),
    )
    spread = (
        gaps.join(medians.select("client_id", "median"), "client_id")
        .groupBy("client_id")
        .agg(F.percentile(F.abs(F.col("gap") - F.col("median")), F.lit(0.5)).alias("mad"))
    )
    return medians.join(spread, "client_id")
