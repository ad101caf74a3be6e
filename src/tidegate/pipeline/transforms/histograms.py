"""Quantiles of log2 histograms as Spark expressions: bins are collected into one array a key, and folded over.

A histogram is an array of `(bin, count)`, ascending by bin; see `schema.bin_of`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.schema import BINS_PER_OCTAVE

PAIRS = "histogram"


def collect(frame: DataFrame, *keys: str, bin: str = "bin", count: str = "count") -> DataFrame:
    """One row for each key with its merged histogram in `histogram`."""
    # One exchange by key serves both aggregations.
    merged = frame.repartition(*keys).groupBy(*keys, bin).agg(F.sum(count).alias("count"))
    pair = F.struct(F.col(bin).cast("int").alias("bin"), F.col("count"))
    return merged.groupBy(*keys).agg(F.sort_array(F.collect_list(pair)).alias(PAIRS))


def value(bin: Column) -> Column:
    """`schema.bin_value`: what stands for a bin, in µs."""
    power = F.pow(F.lit(2.0), (bin - F.lit(0.5)) / F.lit(float(BINS_PER_OCTAVE)))
    return F.when(bin <= 0, F.lit(0.0)).otherwise(power)


def total(pairs: str | Column = PAIRS) -> Column:
    return F.aggregate(pairs, F.lit(0).cast("long"), lambda seen, each: seen + each["count"])


def quantile(q: float, pairs: str = PAIRS) -> Column:
    """Nearest-rank quantile in µs, the same as `schema.quantile`."""
    return value(_at(F.col(pairs), q))


def median_deviation(median: Column, pairs: str = PAIRS) -> Column:
    """Median of |value − median|, in µs: MAD."""
    deviations = F.sort_array(
        F.transform(
            pairs,
            lambda each: F.struct(
                F.abs(value(each["bin"]) - median).alias("bin"), each["count"].alias("count")
            ),
        )
    )
    return _at(deviations, 0.5)


def _at(pairs: Column, q: float) -> Column:
    """The first entry at which the running count reaches the rank; null of nothing."""
    # The rank is part of the state: written into the function, it would be computed again for every entry.
    rank = F.greatest(F.lit(1.0), F.lit(q) * total(pairs))
    start = F.struct(rank.alias("left"), F.lit(None).cast("double").alias("found"))

    def step(state: Column, each: Column) -> Column:
        left = state["left"] - each["count"]
        is_here = state["found"].isNull() & (left <= 0)
        return F.struct(
            left.alias("left"),
            F.when(is_here, each["bin"].cast("double")).otherwise(state["found"]).alias("found"),
        )

    return F.aggregate(pairs, start, step, lambda state: state["found"])
