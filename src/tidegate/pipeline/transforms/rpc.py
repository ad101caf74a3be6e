"""Latency of calls by hop and hour, and which hop was the bottleneck (spec 4)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidegate.pipeline.io import moment
from tidegate.pipeline.transforms import histograms

QUANTILES = (("p50_us", 0.50), ("p90_us", 0.90), ("p95_us", 0.95), ("p99_us", 0.99))


def latency(hops: DataFrame) -> DataFrame:
    """Rows of `tables.RPC_LATENCY`."""
    at = moment().alias("at")
    each = hops.select(at, "hop", "bin", "count", "sum_us")
    means = each.groupBy("at", "hop").agg(
        F.sum("count").alias("calls"), (F.sum("sum_us") / F.sum("count")).alias("mean_us")
    )
    quantiles = histograms.collect(each, "at", "hop").select(
        "at", "hop", *(histograms.quantile(q).alias(name) for name, q in QUANTILES)
    )
    longest = F.max(F.when(F.col("hop") != "total", F.col("mean_us"))).over(Window.partitionBy("at"))
    is_bottleneck = (F.col("hop") != "total") & (F.col("mean_us") == longest)
    return means.join(quantiles, ["at", "hop"]).withColumn("is_bottleneck", is_bottleneck)
