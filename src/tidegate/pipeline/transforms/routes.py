"""The best gateway of each device (spec 4), with ageing and hysteresis, flaps and dead gateways.

Slots of five minutes stand for single advertisements: their mean has a fraction of the noise, and the rule is folded
over the slots of a device in order. A device stays with its gateway unless another is stronger by the hysteresis, or
its own was not heard for some slots while the device was heard elsewhere.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

STATE = "struct<gw: string, rssi: double, silent: int, flaps: bigint, second: string>"


def routes(beacons: DataFrame, hysteresis: float = 5.0, age: int = 2) -> DataFrame:
    """Rows of `schema.ROUTES`."""
    heard = beacons.groupBy("mac", "slot", "gw").agg(
        (F.sum("rssi_sum") / F.sum("count")).alias("rssi"), F.max("last").alias("last")
    )
    # Strongest first; equal ones by name, so that the answer is one.
    entry = F.struct((-F.col("rssi")).alias("weakness"), "gw")
    slots = heard.groupBy("mac", "slot").agg(F.sort_array(F.collect_list(entry)).alias("heard"), F.max("last").alias("last"))
    of_device = slots.groupBy("mac").agg(
        F.sort_array(F.collect_list(F.struct("slot", "heard"))).alias("slots"), F.max("last").alias("heard_at")
    )
    start = F.expr(f"CAST(named_struct('gw', NULL, 'rssi', NULL, 'silent', 0, 'flaps', 0L, 'second', NULL) AS {STATE})")
    last = F.aggregate("slots", start, lambda state, slot: _step(state, slot["heard"], hysteresis, age))
    return of_device.withColumn("route", last).select(
        "mac", F.col("route.gw").alias("gw"), F.col("route.rssi").alias("rssi"), "heard_at",
        F.col("route.second").alias("second_gw"), F.col("route.flaps").alias("flaps"),
    )  # fmt: skip


def _step(state: Column, heard: Column, hysteresis: float, age: int) -> Column:
    best = heard[0]
    strength = -best["weakness"]
    own = F.filter(heard, lambda each: each["gw"] == state["gw"])
    is_heard = F.size(own) > 0
    own_strength = F.when(is_heard, -F.get(own, F.lit(0))["weakness"])
    silent = F.when(is_heard, F.lit(0)).otherwise(state["silent"] + 1)
    leaves = (
        state["gw"].isNull()
        | (is_heard & (strength > own_strength + hysteresis))
        | (~is_heard & (silent >= age))
    )
    gw = F.when(leaves, best["gw"]).otherwise(state["gw"])
    others = F.filter(heard, lambda each: each["gw"] != gw)
    found = F.struct(
        gw.alias("gw"),
        F.when(leaves, strength).otherwise(F.coalesce(own_strength, state["rssi"])).alias("rssi"),
        F.when(leaves, F.lit(0)).otherwise(silent).alias("silent"),
        (state["flaps"] + F.when(leaves & state["gw"].isNotNull(), 1).otherwise(0)).cast("long").alias("flaps"),
        F.coalesce(F.get(others, F.lit(0))["gw"], F.when(leaves, state["gw"]).otherwise(state["second"])).alias("second"),
    )
    return found.cast(STATE)


def gateways(beacons: DataFrame, routes: DataFrame, age: int = 2) -> DataFrame:
    """Rows of `tables.GATEWAYS`. Dead: not heard from for some slots, in which others heard devices that it had heard."""
    last = beacons.groupBy("gw").agg(F.max("slot").alias("last_slot"), F.max("last").alias("heard_at"))
    known = beacons.select("gw", "mac").distinct()
    later = beacons.groupBy("mac").agg(F.max("slot").alias("mac_slot"))
    alive = known.join(later, "mac").groupBy("gw").agg(F.max("mac_slot").alias("devices_slot"))
    routed = routes.groupBy("gw").agg(F.count("*").alias("devices"))
    is_dead = F.col("devices_slot") - F.col("last_slot") > age
    return (
        last.join(alive, "gw")
        .join(routed, "gw", "left")
        .select("gw", "heard_at", F.coalesce("devices", F.lit(0)).alias("devices"), is_dead.alias("is_dead"))
    )
