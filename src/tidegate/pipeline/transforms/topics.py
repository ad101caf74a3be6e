"""Topics: rates, the profile of the week, a forecast of the next hour, and which of them rise together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

DAYS: Final = 7
WEEK_WEIGHT: Final = 2.0  # of the same hour of the week before, beside each of the days
RECENT: Final = 3  # hours whose median error corrects the level
HISTORY: Final = 48  # hours that tell how large errors usually are
MEDIAN_OF_THREE: Final = 1.57 / 3.0  # variance of a median of three over that of one
LEVEL_MAX: Final = 1.4  # logarithm: nobody is four times what it was for long
LATELY: Final = 0.6  # weight of an hour against the next, where no day came before
INTERVAL: Final = 1.645  # standard deviations: nine of ten hours lie inside
BACKTEST: Final = 72  # hours that tell how good forecasts are
LEAST_SECONDS: Final = 600  # recorded ones, of which a correlation is computed
LEAST_HEARD: Final = 60  # of these, with a message of either topic: one that was used once tells nothing
QUIET: Final = 300  # seconds without a message of any topic: more than these were not recorded

GRAM_SCHEMA: Final = T.StructType(
    [
        T.StructField("topic_a", T.StringType()),
        T.StructField("topic_b", T.StringType()),
        T.StructField("covariance", T.DoubleType()),
        T.StructField("variance_a", T.DoubleType()),
        T.StructField("variance_b", T.DoubleType()),
        T.StructField("seconds", T.LongType()),
        T.StructField("heard", T.LongType()),
    ]
)


def grid(topics: DataFrame) -> DataFrame:
    """A row for each topic and hour from the first to the next after the last; n is null for hours not recorded."""
    index = F.expr("CAST(unix_date(date) AS BIGINT) * 24 + hour")
    seen = topics.select("topic", index.alias("h"), F.col("messages").cast("double").alias("n"))
    recorded = seen.select("h").distinct().withColumn("is_recorded", F.lit(True))
    span = seen.agg(F.min("h").alias("low"), F.max("h").alias("high"))
    hours = span.select(F.explode(F.sequence("low", F.col("high") + 1)).alias("h"), "high")
    hours = hours.join(recorded, "h", "left")
    every = seen.select("topic").distinct().crossJoin(F.broadcast(hours))
    n = F.when(F.col("is_recorded"), F.coalesce("n", F.lit(0.0)))
    return every.join(seen, ["topic", "h"], "left").select(
        "topic", "h", (F.col("h") > F.col("high")).alias("is_next"), n.alias("n")
    )


def forecasts(grid: DataFrame) -> DataFrame:
    """Adds to each hour `forecast`, made of the hours before it, `naive`, the same hour of the day before, and `error`.

    The mean of the same hour of earlier days, times how the last hours compared with theirs. That level is a median, so
    one odd hour is none, and it is shrunk (James and Stein) by how large such ratios are without any reason.
    """
    ordered = Window.partitionBy("topic").orderBy("h")

    def weighted(terms: Iterable[tuple[Column, float]]) -> Column:
        total, weight = F.lit(0.0), F.lit(0.0)
        for term, factor in terms:
            total = total + F.coalesce(term * factor, F.lit(0.0))
            weight = weight + F.when(term.isNotNull(), F.lit(factor)).otherwise(0.0)
        return F.try_divide(total, weight)

    days = [(F.lag("n", 24 * day).over(ordered), 1.0) for day in range(1, DAYS)]
    days.append((F.lag("n", 24 * DAYS).over(ordered), WEEK_WEIGHT))
    with_season = grid.withColumn("season", weighted(days)).withColumn("naive", F.lag("n", 24).over(ordered))
    ratio = F.log((F.col("n") + 1.0) / (F.col("season") + 1.0))
    with_ratio = with_season.withColumn("ratio", ratio)
    # The mean of absolute values, times this, is a standard deviation; hours that are missing do not count.
    usual = F.avg(F.abs("ratio")).over(ordered.rowsBetween(-HISTORY, -1)) * 1.2533
    recent = F.array_sort(F.array(*(F.lag("ratio", back).over(ordered) for back in range(1, RECENT + 1))))
    middle = F.when(recent[RECENT - 1].isNotNull(), recent[RECENT // 2])
    # Half of it: following a true level late costs more than following a false one.
    noise = 0.5 * usual * usual * MEDIAN_OF_THREE
    shrunk = middle * F.greatest(F.lit(0.0), 1.0 - F.try_divide(noise, middle * middle))
    level = F.greatest(F.lit(-LEVEL_MAX), F.least(F.lit(LEVEL_MAX), F.coalesce(shrunk, F.lit(0.0))))
    lately = [(F.lag("n", back).over(ordered), LATELY**back) for back in range(1, RECENT + 1)]
    forecast = F.coalesce(F.col("season") * F.exp(level), weighted(lately))
    made = with_ratio.withColumn("forecast", F.greatest(F.lit(0.0), forecast))
    return made.withColumn("error", F.log((F.col("n") + 1.0) / (F.col("forecast") + 1.0)))


def topic_policy(topics: DataFrame, made: DataFrame, groups: DataFrame) -> DataFrame:
    """Rows of `schema.TOPICS`; `made` are the forecasts, `groups` has `topic` and `burst_group`."""
    of_topic = made.groupBy("topic").agg(
        F.sum("n").alias("messages"),
        F.count("n").alias("hours"),
        F.max(F.when(F.col("is_next"), F.col("forecast"))).alias("forecast"),
        F.avg(F.when(F.col("season").isNotNull(), F.col("error") ** 2 - 1.0 / (F.col("n") + 1.0))).alias(
            "model"
        ),
        F.avg(F.col("error") ** 2 - 1.0 / (F.col("n") + 1.0)).alias("rough"),
    )
    variance = F.greatest(F.lit(0.0), F.coalesce("model", "rough", F.lit(1.0)))
    half = INTERVAL * F.sqrt(variance * F.col("forecast") ** 2 + F.col("forecast") + 1.0)
    size = topics.groupBy("topic").agg(F.sum("bytes").alias("bytes"))
    seconds = F.col("hours") * 3600.0
    return (
        of_topic.join(size, "topic")
        .join(profile(made), "topic", "left")
        .join(F.broadcast(groups), "topic", "left")
        .select(
            "topic",
            F.try_divide(F.col("messages"), seconds).alias("rate"),
            F.try_divide(F.col("bytes"), seconds).alias("bytes_rate"),
            "profile",
            (F.col("forecast") / 3600).alias("forecast"),
            (F.greatest(F.lit(0.0), F.col("forecast") - half) / 3600).alias("forecast_low"),
            ((F.col("forecast") + half) / 3600).alias("forecast_high"),
            "burst_group",
        )
    )


def profile(grid: DataFrame) -> DataFrame:
    """Messages per second in each hour of the week. An hour of the week not seen yet is that hour of other days."""
    made = grid.where("n IS NOT NULL")
    hour_of_day = (F.col("h") % 24).cast("int")
    week = ((F.expr("CAST(h div 24 AS BIGINT)") + 3) % 7 * 24 + hour_of_day).cast(
        "int"
    )  # 1970-01-01 was a Thursday
    means = made.groupBy("topic", week.alias("week")).agg(F.avg("n").alias("n"))
    by_day = made.groupBy("topic", hour_of_day.alias("hod")).agg(F.avg("n").alias("n"))
    overall = made.groupBy("topic").agg((F.avg("n") / 3600).alias("all"))

    def mapped(frame: DataFrame, key: str, name: str) -> DataFrame:
        return frame.groupBy("topic").agg(
            F.map_from_entries(F.collect_list(F.struct(key, F.col("n") / 3600))).alias(name)
        )

    joined = (
        mapped(means, "week", "weeks").join(mapped(by_day, "hod", "days"), "topic").join(overall, "topic")
    )
    return joined.select(
        "topic",
        F.transform(
            F.sequence(F.lit(0), F.lit(167)),
            lambda at: F.coalesce(
                F.try_element_at("weeks", at), F.try_element_at("days", (at % 24).cast("int")), F.col("all")
            ),
        ).alias("profile"),
    )


def forecast_quality(forecasts: DataFrame) -> DataFrame:
    """Rows of `tables.FORECASTS`, over the last hours that have a day before them. Each was made before its hour."""
    made = forecasts.where("n IS NOT NULL AND naive IS NOT NULL")
    last = made.agg(F.max("h").alias("last"))
    shown = made.crossJoin(F.broadcast(last)).where(F.col("h") > F.col("last") - BACKTEST)
    before = Window.partitionBy("topic").orderBy("h").rowsBetween(Window.unboundedPreceding, -1)
    variance = F.greatest(
        F.lit(0.0),
        F.coalesce(F.avg(F.col("error") ** 2 - 1.0 / (F.col("n") + 1.0)).over(before), F.lit(0.05)),
    )
    half = INTERVAL * F.sqrt(variance * F.col("forecast") ** 2 + F.col("forecast") + 1.0)
    off = F.abs(F.col("n") - F.col("forecast"))
    return (
        shown.withColumn("is_inside", (off <= half).cast("double"))
        .groupBy("topic")
        .agg(
            F.count("*").alias("hours"),
            (F.avg(off) / 3600).alias("error"),
            (F.avg(F.abs(F.col("n") - F.col("naive"))) / 3600).alias("naive_error"),
            F.avg("is_inside").alias("covered"),
        )
    )


def correlations(seconds: DataFrame, least: float = 0.7) -> DataFrame:
    """Rows of `schema.CORRELATIONS` with ρ ≥ `least`: exact, over all seconds of all hours that were recorded.

    Deviations are from the mean of each hour: the rhythm of a day makes all topics alike and is no burst. Nor are the
    beginning and the end of a recording: seconds outside of it do not count, and a short one tells nothing. The
    products of all pairs are a matrix multiplication an hour, which Spark has no expression for; joining topics by
    second would make hundreds of millions of rows.
    """
    products = seconds.groupBy("date", "hour").applyInArrow(_products, GRAM_SCHEMA)
    # A topic may lack hours, of the time before it was among the busiest: a pair is judged by those that both have.
    summed = products.groupBy("topic_a", "topic_b").agg(
        *(F.sum(name).alias(name) for name in ("covariance", "variance_a", "variance_b", "seconds", "heard"))
    )
    rho = F.try_divide(F.col("covariance"), F.sqrt(F.col("variance_a") * F.col("variance_b")))
    return (
        summed.where(
            f"seconds >= {LEAST_SECONDS} AND heard >= {LEAST_HEARD} AND variance_a > 0 AND variance_b > 0"
        )
        .select("topic_a", "topic_b", F.least(F.lit(1.0), rho).alias("rho"), "seconds")
        .where(F.col("rho") >= least)
    )


def _products(table: Any) -> Any:
    """Sums over one hour of the products of deviations, for all pairs of topics; called with the hour's rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    table = table.sort_by("topic").combine_chunks()
    names = np.asarray(table["topic"].to_pylist(), dtype=object)
    seconds, counts = (pc.list_flatten(table[name]).to_numpy() for name in ("seconds", "counts"))
    rows = np.repeat(np.arange(len(names)), pc.list_value_length(table["seconds"]).to_numpy())
    matrix = np.zeros((len(names), 3600))
    matrix[rows, seconds] = counts
    matrix = matrix[:, _recorded(np.unique(seconds))]
    active = (matrix > 0).astype(np.float32)
    both = active @ active.T
    heard = np.diagonal(both)
    matrix -= matrix.mean(axis=1, keepdims=True)
    gram = matrix @ matrix.T
    variance = np.diagonal(gram)
    first, second = np.triu_indices(len(names), 1)
    return pa.table(
        {
            "topic_a": pa.array(names[first], pa.string()),
            "topic_b": pa.array(names[second], pa.string()),
            "covariance": gram[first, second],
            "variance_a": variance[first],
            "variance_b": variance[second],
            "seconds": np.full(len(first), matrix.shape[1], np.int64),
            "heard": (heard[first] + heard[second] - both[first, second]).astype(np.int64),
        }
    )


def _recorded(heard: Any) -> Any:
    """Which seconds of an hour were recorded, by those with a message, ascending: all but long silences."""
    import numpy as np

    recorded = np.zeros(3600, bool)
    ends = np.flatnonzero(np.diff(heard) > QUIET)
    for begin, end in zip([0, *(ends + 1)], [*ends, len(heard) - 1], strict=True):
        recorded[heard[begin] : heard[end] + 1] = True
    return recorded


def burst_groups(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, int]]:
    """Topics that hang together by pairs, and the number of their group; a handful, so on the driver."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for a, b in pairs:
        parent[max(root(a), root(b))] = min(root(a), root(b))
    numbers: dict[str, int] = {}
    for name in sorted(parent):
        yield name, numbers.setdefault(root(name), len(numbers) + 1)
