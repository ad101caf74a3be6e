"""Raw rows to aggregates that merge by adding: everything after this reads aggregates only.

Nothing is sorted and nothing goes through a window: the broker recorded the gaps. Rows of the two levels have a plan
each, told apart by `window_us`; `full` and `summary` may be one frame with both, or hold the files of one level.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.pipeline.transforms.histograms import value
from tidegate.schema import bin_sql

SLOT_SECONDS = 300  # of beacons


def traffic(full: DataFrame, summary: DataFrame) -> DataFrame:
    """By hour, node, client and topic; the tables of clients, topics and nodes are sums of it."""
    messages = full.where("window_us = 0").select(
        "date",
        "hour",
        "node",
        "client_id",
        "topic",
        "lost",
        "bytes",
        F.col("count").alias("messages"),
        F.col("ts").alias("first"),
        F.col("ts").alias("last"),
        F.expr("CASE WHEN gap_us >= 0 THEN 1L ELSE 0L END").alias("gaps"),
        F.expr("CASE WHEN gap_us >= 0 THEN CAST(gap_us AS DOUBLE) ELSE 0D END").alias("gap"),
        F.expr("CASE WHEN gap_us < 0 THEN 1L ELSE 0L END").alias("negative"),
    )
    return _summed(messages.withColumn("squares", F.col("gap") * F.col("gap")), _windows(summary))


def _windows(summary: DataFrame) -> DataFrame:
    """The same columns from rows of windows, whose gaps are histograms."""
    pairs = F.arrays_zip("gap_bins", "gap_counts")
    zero = F.lit(0.0)

    def weigh(power: int) -> Column:
        def add(total: Column, each: Column) -> Column:
            worth = value(each["gap_bins"].cast("int"))
            return total + (worth if power == 1 else worth * worth) * each["gap_counts"]

        return F.coalesce(F.aggregate(pairs, zero, add), zero)

    counted = F.coalesce(
        F.aggregate("gap_counts", F.lit(0).cast("long"), lambda total, each: total + each),
        F.lit(0).cast("long"),
    )
    return summary.where("window_us > 0").select(
        "date",
        "hour",
        "node",
        "client_id",
        "topic",
        "lost",
        "bytes",
        F.col("count").alias("messages"),
        F.coalesce("first", "ts").alias("first"),
        F.coalesce("last", "ts").alias("last"),
        counted.alias("gaps"),
        weigh(1).alias("gap"),
        F.lit(0).cast("long").alias("negative"),
        weigh(2).alias("squares"),
    )


def _summed(messages: DataFrame, windows: DataFrame) -> DataFrame:
    return (
        messages.unionByName(windows)
        .groupBy("date", "hour", "node", "client_id", "topic")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.sum("gaps").alias("gaps"),
            F.sum("gap").alias("gap_sum_us"),
            F.sum("squares").alias("gap_squares"),
            F.sum("negative").alias("negative_gaps"),
            # Null in files of a recorder that lost nothing.
            F.coalesce(F.sum("lost"), F.lit(0)).alias("lost"),
        )
    )


def clients(traffic: DataFrame) -> DataFrame:
    return traffic.groupBy("date", "hour", "client_id").agg(
        # Equal counts: the later name, so that the answer does not depend on the order of rows.
        F.max(F.struct("messages", "topic"))["topic"].alias("topic"),
        *(
            F.sum(name).alias(name)
            for name in ("messages", "bytes", "gaps", "gap_sum_us", "gap_squares", "negative_gaps")
        ),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )


def topics(traffic: DataFrame) -> DataFrame:
    return traffic.groupBy("date", "hour", "topic").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.count_distinct("client_id").alias("publishers"),
    )


def nodes(traffic: DataFrame) -> DataFrame:
    return traffic.groupBy("date", "hour", "node").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.count_distinct("client_id").alias("publishers"),
        F.sum("lost").alias("lost"),
    )


def gaps(full: DataFrame, summary: DataFrame, part_hours: int) -> DataFrame:
    """Histograms of gaps. A gap that ends a quiet time belongs to it like any other."""
    part = (F.col("hour") / part_hours).cast("int").alias("part")
    messages = full.where("window_us = 0 AND gap_us >= 0").select(
        "date",
        part,
        "client_id",
        F.expr(bin_sql("gap_us")).alias("bin"),
        F.lit(1).cast("long").alias("count"),
    )
    windows = (
        summary.where("window_us > 0")
        .select("date", part, "client_id", F.explode(F.arrays_zip("gap_bins", "gap_counts")).alias("pair"))
        .select(
            "date",
            "part",
            "client_id",
            F.col("pair.gap_bins").alias("bin"),
            F.col("pair.gap_counts").alias("count"),
        )
    )
    return (
        messages.unionByName(windows)
        .groupBy("date", "part", "client_id", "bin")
        .agg(F.sum("count").alias("count"))
    )


def topics_that_matter(topics: DataFrame, most: int) -> DataFrame:
    """The busiest topics, a small table to be broadcast."""
    busiest = topics.groupBy("topic").agg(F.sum("messages").alias("messages"))
    return busiest.orderBy(F.desc("messages"), "topic").limit(most).select("topic")


def seconds(publish: DataFrame, wanted: DataFrame) -> DataFrame:
    """Messages of some topics by second. A row of a window counts in the second of its first message.

    A window may begin before the full hour that its first message is after: that counts in the last second.
    """
    at = F.expr(
        "CAST(CASE WHEN unix_micros(first) div 3600000000 > unix_micros(ts) div 3600000000 THEN 3599 "
        "ELSE unix_micros(coalesce(first, ts)) div 1000000 % 3600 END AS SMALLINT)"
    ).alias("second")
    counted = (
        publish.join(F.broadcast(wanted), "topic", "left_semi")
        .select("date", "hour", "topic", at, F.col("count"))
        .groupBy("date", "hour", "topic", "second")
        .agg(F.sum("count").alias("count"))
    )
    ordered = F.sort_array(F.collect_list(F.struct("second", "count")))
    return (
        counted.groupBy("date", "hour", "topic")
        .agg(ordered.alias("pairs"))
        .select(
            "date",
            "hour",
            "topic",
            F.col("pairs.second").alias("seconds"),
            F.col("pairs.count").alias("counts"),
        )
    )


def loads(load: DataFrame) -> DataFrame:
    def state(name: str) -> Column:
        return F.sum(F.when(F.col("state") == name, 1).otherwise(0)).alias(name.lower())

    return load.groupBy("date", "hour", "node").agg(
        F.count("*").alias("samples"),
        (F.sum("window_us") / 1e6).alias("seconds"),
        state("LOW"),
        state("HIGH"),
        state("OVERLOAD"),
        F.sum(F.col("wait_us").cast("double")).alias("wait_sum_us"),
        F.max("wait_us").alias("wait_max_us"),
        F.sum("cpu_us").alias("cpu_us"),
        F.max("held").alias("held_max"),
        F.max("connections").alias("connections_max"),
        F.sum("publish_received").alias("received"),
        F.sum("publish_sent").alias("sent"),
        F.sum("dropped").alias("dropped"),
    )


def fanout(deliver: DataFrame) -> DataFrame:
    return (
        deliver.where("topic IS NOT NULL")
        .groupBy("date", "hour", "topic")
        .agg(
            F.sum("count").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.count_distinct("client_id", F.coalesce("group", F.lit(""))).alias("subscribers"),
        )
    )


def subscribers(deliver: DataFrame) -> DataFrame:
    keyed = deliver.withColumn("client_id", F.coalesce("client_id", F.lit(""))).withColumn(
        "group", F.coalesce("group", F.lit(""))
    )
    return keyed.groupBy("date", "hour", "client_id", "group").agg(
        F.sum("count").alias("messages"), F.sum("bytes").alias("bytes"), F.sum("dropped").alias("dropped")
    )


def queues(queue: DataFrame) -> DataFrame:
    return queue.groupBy("date", "hour", "client_id").agg(
        F.count("*").alias("samples"),
        F.sum("qd").alias("qd_sum"),
        F.max("qd").alias("qd_max"),
        F.sum(F.col("is_blocked").cast("int")).alias("blocked"),
        F.sum("dropped").alias("dropped"),
        F.sum(F.coalesce("deadline_miss", F.lit(0))).alias("deadline_miss"),
    )


def members(member: DataFrame) -> DataFrame:
    """Moments of the service time over the windows in which a member had messages."""
    state = member.where("kind = 'state' AND count > 0 AND service > 0").withColumn(
        "group", F.coalesce("group", F.lit(""))
    )
    service = F.col("service")
    count = F.col("count").cast("double")
    sums = state.groupBy("date", "hour", "group", "client_id").agg(
        F.count("*").alias("windows"),
        F.sum("count").alias("messages"),
        F.sum(service * count).alias("service_sum"),
        F.sum(service * service * count).alias("service_squares"),
    )
    mean = F.try_divide(F.col("service_sum"), F.col("messages"))
    scatter = F.greatest(F.lit(0.0), F.col("service_squares") - F.col("messages") * mean * mean)
    return sums.withColumn("scatter", scatter)


HOPS = (
    ("queue", "t_enqueued", "t_worker"),
    ("worker", "t_worker", "t_fwd"),
    ("route", "t_fwd", "t_mqtt"),
    ("gateway", "t_mqtt", "t_gw"),
    ("return", "t_gw", "t_bck"),
    ("reply", "t_bck", "t_reply"),
    ("total", "t_enqueued", "t_reply"),
)


def _once(rpc: DataFrame) -> DataFrame:
    """A call that was told twice counts once."""
    return rpc.dropDuplicates(["date", "hour", "request_id", "attempt"])


def rpc_hops(rpc: DataFrame) -> DataFrame:
    hops = F.array(
        *(
            F.struct(
                F.lit(hop).alias("hop"), F.expr(f"unix_micros({end}) - unix_micros({begin})").alias("us")
            )
            for hop, begin, end in HOPS
        )
    )
    each = _once(rpc).select("date", "hour", F.explode(hops).alias("each")).select("date", "hour", "each.*")
    return (
        # Hops that were not reached have no time; clocks of two machines may disagree, and then there is none either.
        each.where("us >= 0")
        .select("date", "hour", "hop", "us", F.expr(bin_sql("us")).alias("bin"))
        .groupBy("date", "hour", "hop", "bin")
        .agg(F.count("*").alias("count"), F.sum(F.col("us").cast("double")).alias("sum_us"))
    )


def rpc_outcomes(rpc: DataFrame) -> DataFrame:
    return (
        _once(rpc)
        .groupBy("date", "hour", F.coalesce("gw", F.lit("")).alias("gw"), "outcome")
        .agg(
            F.count("*").alias("count"), F.sum(F.when(F.col("attempt") > 1, 1).otherwise(0)).alias("retries")
        )
    )


def beacons(beacon: DataFrame) -> DataFrame:
    slot = F.expr(f"unix_micros(ts) div {SLOT_SECONDS * 1_000_000}")
    return beacon.groupBy("date", "hour", "mac", "gw", slot.alias("slot")).agg(
        F.count("*").alias("count"), F.sum("rssi").alias("rssi_sum"), F.max("ts").alias("last")
    )


def control(check: DataFrame) -> DataFrame:
    checks = check.where("kind = 'control' AND client_id IS NOT NULL")
    timeout = F.coalesce("t_ast", F.lit(0.0)) + F.coalesce("t_bck", F.lit(0.0))
    return checks.groupBy("date", "hour", "client_id").agg(
        F.count("*").alias("checks"),
        F.sum(F.when(F.col("losses") > 0, 1).otherwise(0)).alias("lossy"),
        F.sum(F.coalesce("losses", F.lit(0))).alias("losses"),
        F.sum(timeout).alias("seconds"),
        F.sum(F.when(F.col("dropped"), 1).otherwise(0)).alias("dropped"),
        F.sum(F.when(F.col("congested"), 1).otherwise(0)).alias("congested"),
    )


def gate(check: DataFrame) -> DataFrame:
    """Holds and refusals; both levels tell them in rows of their own."""
    answered = check.where("client_id IS NOT NULL AND kind IN ('hold', 'refuse')")
    is_refused = (F.col("kind") == "refuse") | (F.col("d_f") < 0)
    return answered.groupBy("date", "hour", "client_id", F.coalesce("state", F.lit("")).alias("state")).agg(
        F.sum(F.when(is_refused, 0).otherwise(1)).alias("holds"),
        F.sum(F.when(is_refused, F.lit(0.0)).otherwise(F.coalesce("d_f", F.lit(0.0)))).alias("held_seconds"),
        F.sum(F.when(is_refused, F.coalesce("count", F.lit(1))).otherwise(0)).alias("refused"),
        F.max("fr_new").alias("rate_max"),
        F.max("fr_avg").alias("trained_max"),
    )
