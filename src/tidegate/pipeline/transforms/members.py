"""How fast members of shared groups are (spec 5): what a new member starts with."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

HALF_LIFE: Final = 6.0  # hours after which what was measured counts half: a member's speed changes


def members(hours: DataFrame) -> DataFrame:
    """Rows of `schema.POLICY_MEMBERS`: each member in its groups, and in group "" whatever the group.

    A window's mean scatters with the variance of one message over its count, so the scatter weighted by counts, over
    the windows less one, estimates that variance.
    """
    index = F.expr("CAST(unix_date(date) AS BIGINT) * 24 + hour")
    aged = hours.withColumn("h", index)
    last = aged.agg(F.max("h").alias("newest"))
    weight = F.pow(F.lit(0.5), (F.col("newest") - F.col("h")) / HALF_LIFE)
    weighed = aged.crossJoin(F.broadcast(last)).withColumn("weight", weight)
    everywhere = weighed.withColumn("group", F.lit(""))
    sums = (
        weighed.where(F.col("group") != "")
        .unionByName(everywhere)
        .groupBy("group", "client_id")
        .agg(
            F.sum("messages").alias("messages"),
            F.try_divide(
                F.sum(F.col("service_sum") * F.col("weight")), F.sum(F.col("messages") * F.col("weight"))
            ).alias("service"),
            F.sum(F.col("scatter") * F.col("weight")).alias("scatter"),
            F.sum(F.greatest(F.lit(0), F.col("windows") - 1) * F.col("weight")).alias("freedom"),
        )
    )
    deviation = F.sqrt(F.try_divide(F.col("scatter"), F.col("freedom")))
    variability = F.coalesce(F.try_divide(deviation, F.col("service")), F.lit(0.0))
    return sums.where("service > 0").select(
        "group", "client_id", "service", variability.alias("variability"), "messages"
    )
