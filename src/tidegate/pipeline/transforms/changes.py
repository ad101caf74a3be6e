"""Clients whose behaviour changed, and since when, from hourly counts alone.

Theory of operation. What a client sends in an hour is compared with what its cohort did (clients that share the first
level of their topic): the day's rhythm, a weekend or an outage of the node is the same for all of them and says nothing
about one. Every hour is then tried as the beginning of a new behaviour (a likelihood ratio for counts whose spread is
measured, not assumed), by running sums over one ordered pass. Three findings: the rate is another from some hour on;
some hours stand out and it is over, a burst; or the rate is the same and its gaps became irregular.

A client may have a rhythm of its own. So a change of the rate counts only if it shows between equal hours of the day
as well, where both sides have some. And an hour that stands out for half of those who send to the same topic was an
event that they all saw: a burst of the topic, not of one client.
"""

from __future__ import annotations

from math import log
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidegate.pipeline.transforms.cohorts import grid, with_shape

LEAST_HOURS: Final = 6  # before which nothing can be called usual
TRIMMED: Final = 4  # differences left out of the spread: a change itself makes up to four large ones
SPREAD_FLOOR: Final = 0.5
SHIFT: Final = 40.0  # likelihood ratio (χ², one degree) of a shift: p below 10⁻⁹ for ideal counts
LEAST_MESSAGES: Final = 60  # all together; fewer show nothing
BURST_RATIO: Final = 3.0
BURST_SCORE: Final = 60.0  # squared standard deviations of an hour that stands out
BURST_LEAST: Final = 30.0  # messages over the usual
RARE: Final = 5.0  # messages an hour: below it an hour must have RARE_BURST to stand out
RARE_BURST: Final = 600.0
COMMON_LEAST: Final = 3  # senders to one topic that stand out in the same hour,
COMMON_SHARE: Final = 0.5  # and the share of all of them, that make it an event
IRREGULAR: Final = 1.5  # difference of ln(variation² + 0.01)
IRREGULAR_T: Final = 6.0


def changes(clients: DataFrame, ratio: float = 1.5) -> DataFrame:
    """Rows of `tables.CHANGES`; empty while there are too few hours."""
    return judged(tried(grid(clients)), ratio)


def tried(grid: DataFrame) -> DataFrame:
    """Every client and hour with the sums before it and of all; `judged` goes over it several times."""
    shaped = with_shape(grid)
    ordered = Window.partitionBy("client_id").orderBy("h")
    before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy("client_id")
    x = F.col("n") / F.col("s")
    last_x = F.lag(x).over(ordered)
    last_s = F.lag("s").over(ordered)
    level = (x + last_x) / 2.0
    # For Poisson counts the expectation of this is 1.
    spread = (x - last_x) ** 2 / F.greatest(F.lit(1e-9), level * (1.0 / F.col("s") + 1.0 / last_s))
    return shaped.select(
        "client_id",
        "topic",
        "h",
        "hour",
        "at",
        "n",
        "s",
        "variation",
        x.alias("x"),
        F.when(level > 0, spread).alias("spread"),
        F.sum("n").over(before).alias("n1"),
        F.sum("s").over(before).alias("s1"),
        F.sum("n").over(whole).alias("total"),
        F.sum("s").over(whole).alias("shape"),
        F.sum("variation").over(before).alias("v1"),
        F.count("variation").over(before).alias("c1"),
        F.sum("variation").over(whole).alias("v"),
        F.count("variation").over(whole).alias("c"),
        F.sum(F.col("variation") ** 2).over(whole).alias("vv"),
        F.count("*").over(whole).alias("hours"),
    )


def judged(rows: DataFrame, ratio: float = 1.5) -> DataFrame:
    """Rows of `tables.CHANGES` from those of `tried`."""
    splits = rows.withColumn("shift", _likelihood()).withColumn("unrest", _unrest())
    found = splits.groupBy("client_id").agg(
        F.max(F.struct("shift", "h", "n1", "s1")).alias("best"),
        F.max(F.struct("unrest", "h", "v1", "c1")).alias("calm"),
        F.first("total").alias("total"),
        F.first("shape").alias("shape"),
        F.first("hours").alias("hours"),
        F.first("v").alias("v"),
        F.first("c").alias("c"),
        F.first("vv").alias("vv"),
        F.median("x").alias("usual"),
        _trimmed_mean(F.sort_array(F.collect_list("spread"))).alias("spread"),
    )
    known = found.where((F.col("hours") >= LEAST_HOURS) & (F.col("total") >= LEAST_MESSAGES)).withColumn(
        "spread", F.greatest(F.lit(SPREAD_FLOOR), F.col("spread"))
    )
    marked = rows.select("client_id", "topic", "h", "hour", "at", "n", "s", "x").join(known, "client_id")
    return _findings(_marked(marked), ratio)


def _marked(rows: DataFrame) -> DataFrame:
    """Adds `stands_out`: far more than usual, and not what everybody at the topic did."""
    expected = F.col("usual") * F.col("s")
    over = F.col("n") - expected
    is_rare = F.col("usual") < RARE
    is_high = (
        (F.col("x") > BURST_RATIO * F.col("usual"))
        & (over * over / (F.col("spread") * F.greatest(F.lit(1.0), expected)) > BURST_SCORE)
        & (over > F.when(is_rare, F.lit(RARE_BURST)).otherwise(F.lit(BURST_LEAST)))
    )
    high = rows.withColumn("is_high", is_high)
    events = (
        high.groupBy("topic", "h")
        .agg(F.sum(F.col("is_high").cast("int")).alias("loud"), F.count("*").alias("senders"))
        .where((F.col("loud") >= COMMON_LEAST) & (F.col("loud") >= COMMON_SHARE * F.col("senders")))
        .select("topic", "h", F.lit(True).alias("is_event"))
    )
    return high.join(F.broadcast(events), ["topic", "h"], "left").withColumn(
        "stands_out", F.col("is_high") & F.col("is_event").isNull()
    )


def _likelihood() -> Column:
    """Twice the log likelihood ratio of two rates, before this hour and from it on, against one."""
    n1, s1 = F.col("n1"), F.col("s1")
    n2, s2 = F.col("total") - n1, F.col("shape") - s1
    one = F.try_divide(F.col("total"), F.col("shape"))

    def part(n: Column, s: Column) -> Column:
        return F.when(n > 0, n * F.log(F.try_divide(n, s * one))).otherwise(F.lit(0.0))

    fits = (F.col("h") >= 3) & (s2 > 0) & (F.col("total") > 0)
    return F.when(fits, 2.0 * (part(n1, s1) + part(n2, s2))).otherwise(F.lit(0.0))


def _unrest() -> Column:
    """Squared difference of the mean variation before and after, weighted as a t test does."""
    c2 = F.col("c") - F.col("c1")
    gap = F.try_divide(F.col("v1"), F.col("c1")) - F.try_divide(F.col("v") - F.col("v1"), c2)
    return F.when(
        (F.col("c1") >= 3) & (c2 >= 2), F.try_divide(gap * gap * F.col("c1") * c2, F.col("c"))
    ).otherwise(F.lit(0.0))


def _trimmed_mean(values: Column) -> Column:
    kept = F.slice(values, F.lit(1), F.greatest(F.lit(1), F.size(values) - TRIMMED))
    added = F.aggregate(kept, F.lit(0.0), lambda total, each: total + each)
    return F.coalesce(added / F.greatest(F.lit(1), F.size(kept)), F.lit(SPREAD_FLOOR))


def _findings(marked: DataFrame, ratio: float) -> DataFrame:
    """One row for each client that changed, by the strongest of the three findings."""
    is_after = F.col("h") >= F.col("best.h")
    stands_out = F.col("stands_out")
    # The hour of the day in which both sides have something, weighted alike.
    by_hour = marked.groupBy("client_id", "hour").agg(
        F.avg(F.when(~is_after, F.col("x"))).alias("early"), F.avg(F.when(is_after, F.col("x"))).alias("late")
    )
    matched = (
        by_hour.where("early IS NOT NULL AND late IS NOT NULL")
        .groupBy("client_id")
        .agg(F.try_divide(F.sum("late"), F.sum("early")).alias("matched"))
    )
    sums = marked.groupBy("client_id").agg(
        *(
            F.first(name).alias(name)
            for name in ("best", "calm", "total", "shape", "hours", "v", "c", "vv", "spread")
        ),
        F.min(F.when(F.col("h") == F.col("best.h"), F.col("at"))).alias("shift_at"),
        F.min(F.when(F.col("h") == F.col("calm.h"), F.col("at"))).alias("unrest_at"),
        F.min(F.when(stands_out, F.col("at"))).alias("burst_at"),
        F.max(F.when(stands_out, F.col("at"))).alias("burst_end"),
        F.max(F.when(stands_out, F.col("h"))).alias("burst_last"),
        F.sum(F.when(stands_out, 1).otherwise(0)).alias("burst_hours"),
        F.max(F.when(stands_out, F.col("n"))).alias("burst_n"),
        F.first(F.col("usual")).alias("usual"),
    )
    rate1 = F.try_divide(F.col("best.n1"), F.col("best.s1"))
    rate2 = (F.col("total") - F.col("best.n1")) / F.greatest(F.lit(1e-9), F.col("shape") - F.col("best.s1"))
    score = F.col("best.shift") / F.col("spread") / SHIFT
    step = F.abs(F.log((rate2 + 0.01) / (rate1 + 0.01))) / log(ratio)
    agrees = F.coalesce(F.abs(F.log(F.col("matched") + 0.001)) / log(ratio) >= 0.8, F.lit(True))
    shift = F.when(agrees, F.least(score, step)).otherwise(F.lit(0.0))
    # A burst that is over is told as one; a few loud hours must not pass for a new habit.
    burst = F.when(
        (F.col("burst_hours") > 0) & (F.col("burst_last") < F.col("hours") - 1), F.lit(1.0)
    ).otherwise(0.0)
    c2 = F.col("c") - F.col("calm.c1")
    v1 = F.try_divide(F.col("calm.v1"), F.col("calm.c1"))
    v2 = F.try_divide(F.col("v") - F.col("calm.v1"), c2)
    rest = F.greatest(
        F.lit(1e-6), F.try_divide(F.col("vv") - F.col("calm.c1") * v1 * v1 - c2 * v2 * v2, F.col("c"))
    )
    t = F.sqrt(F.col("calm.unrest") / F.greatest(F.lit(0.01), rest))
    unrest = F.coalesce(F.least(F.abs(v2 - v1) / IRREGULAR, t / IRREGULAR_T), F.lit(0.0))
    scored = sums.join(matched, "client_id", "left").select(
        "client_id",
        "shift_at",
        "unrest_at",
        "burst_at",
        (F.col("burst_end") + F.expr("INTERVAL 1 HOUR")).alias("burst_end"),
        "usual",
        "burst_n",
        rate1.alias("rate1"),
        rate2.alias("rate2"),
        F.coalesce(shift, F.lit(0.0)).alias("shift"),
        burst.alias("burst"),
        unrest.alias("unrest"),
        (F.exp(v1) - 0.01).alias("v1"),
        (F.exp(v2) - 0.01).alias("v2"),
    )
    is_burst, is_shift, is_unrest = F.col("burst") >= 1, F.col("shift") >= 1, F.col("unrest") >= 1
    speed = (
        F.when(F.col("rate2") < 0.05 * F.col("rate1"), "silent")
        .when(F.col("rate2") > F.col("rate1"), "faster")
        .otherwise("slower")
    )
    return scored.where(is_burst | is_shift | is_unrest).select(
        "client_id",
        F.when(is_burst, F.col("burst_at"))
        .when(is_shift, F.col("shift_at"))
        .otherwise(F.col("unrest_at"))
        .alias("changed_at"),
        F.when(is_burst, F.lit("burst")).when(is_shift, speed).otherwise(F.lit("irregular")).alias("kind"),
        F.when(is_burst, F.col("usual") / 3600)
        .when(is_shift, F.col("rate1") / 3600)
        .otherwise(F.col("v1"))
        .alias("before"),
        F.when(is_burst, F.col("burst_n") / 3600)
        .when(is_shift, F.col("rate2") / 3600)
        .otherwise(F.col("v2"))
        .alias("after"),
        F.greatest("burst", "shift", "unrest").alias("score"),
        is_burst.alias("is_over"),
        F.when(is_burst, F.col("burst_end")).alias("ended_at"),
    )
