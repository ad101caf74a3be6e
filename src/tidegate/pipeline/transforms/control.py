"""Active control (spec 3): the loss rate of each client, what follows from it, and parameters for a wanted staleness.

For losses that come as a Poisson process of rate ν, timeouts rise from T/α to T by δ a check:
T = √(2δα²/(ν(α²−1))), N = T(α−1)/(αδ), τ = T(α+1)/(2α). Solved for δ, the last gives the step for a wanted τ.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ALPHA: Final = 2.0
LEAST_STEP, MOST_STEP = 0.01, 10.0  # seconds


def control(hours: DataFrame, staleness: float = 5.0, alpha: float = ALPHA) -> DataFrame:
    """Rows of `schema.CONTROL`, one a client and one, with an empty name, for all together."""
    everybody = hours.withColumn("client_id", F.lit(""))
    sums = (
        hours.unionByName(everybody)
        .groupBy("client_id")
        .agg(*(F.sum(name).alias(name) for name in ("checks", "lossy", "losses", "seconds")))
        .where("seconds > 0")
    )
    loss_rate = F.try_divide(F.col("losses"), F.col("seconds"))
    top = 2.0 * alpha * staleness / (alpha + 1.0)  # T for the wanted τ
    step = top * top * F.col("loss_rate") * (alpha * alpha - 1.0) / (2.0 * alpha * alpha)
    delta = F.greatest(F.lit(LEAST_STEP), F.least(F.lit(MOST_STEP), step))
    has_loss = F.col("loss_rate") > 0
    t = F.sqrt(F.try_divide(2.0 * F.col("delta") * alpha * alpha, F.col("loss_rate") * (alpha * alpha - 1.0)))
    return (
        sums.withColumn("loss_rate", loss_rate)
        .withColumn("delta", delta)
        .select(
            "client_id",
            "loss_rate",
            (F.col("seconds") / F.col("checks")).alias("tau"),
            F.when(has_loss, t).alias("t"),
            F.when(has_loss, t * (alpha - 1.0) / (alpha * F.col("delta"))).alias("n"),
            F.try_divide(F.col("losses"), F.col("lossy")).alias("k"),
            F.lit(alpha).alias("alpha"),
            "delta",
        )
    )
