"""The best gateway of each device (spec 4), with ageing and hysteresis, flaps and dead gateways.

Advertisements of five minutes stand together, and their strength is smoothed over such slots, the more the fewer they
were: one of them scatters by several decibels. The rule is folded over the slots of a device in order: it stays with
its gateway unless another is stronger by the hysteresis, or its own was not heard for some slots in which others were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ENOUGH: Final = 4.0  # advertisements in a slot that count as much as all before
KNOWN: Final = "array<struct<gw: string, rssi: double, age: int>>"
STATE: Final = f"struct<gw: string, flaps: bigint, known: {KNOWN}>"


def routes(beacons: DataFrame, hysteresis: float = 5.0, age: int = 2) -> DataFrame:
    """Rows of `schema.ROUTES`. `age`: slots without a word after which a gateway is none."""
    # One exchange by device serves all that follows. A slot lies within an hour, so each entry is there once.
    entry = F.struct("gw", (F.col("rssi_sum") / F.col("count")).alias("rssi"), "count")
    slots = (
        beacons.repartition("mac")
        .groupBy("mac", "slot")
        .agg(F.sort_array(F.collect_list(entry)).alias("heard"), F.max("last").alias("last"))
    )
    of_device = slots.groupBy("mac").agg(
        F.sort_array(F.collect_list(F.struct("slot", "heard"))).alias("slots"),
        F.max("last").alias("heard_at"),
    )
    start = F.expr(f"CAST(named_struct('gw', NULL, 'flaps', 0L, 'known', array()) AS {STATE})")
    last = F.aggregate("slots", start, lambda state, slot: _step(state, slot["heard"], hysteresis, age))
    found = of_device.select("mac", "heard_at", last.alias("route"))
    own = F.filter("route.known", lambda each: each["gw"] == F.col("route.gw"))
    others = F.filter("route.known", lambda each: each["gw"] != F.col("route.gw"))
    return found.select(
        "mac",
        F.col("route.gw").alias("gw"),
        F.get(own, F.lit(0))["rssi"].alias("rssi"),
        "heard_at",
        _strongest(others)["gw"].alias("second_gw"),
        F.col("route.flaps").alias("flaps"),
    )


def _strongest(known: Column) -> Column:
    """Equal ones by name, so that the answer is one."""
    return F.array_max(
        F.transform(known, lambda each: F.struct(each["rssi"].alias("rssi"), each["gw"].alias("gw")))
    )


def _step(state: Column, heard: Column, hysteresis: float, age: int) -> Column:
    def smoothed(each: Column) -> Column:
        before = F.get(F.filter(state["known"], lambda old: old["gw"] == each["gw"]), F.lit(0))["rssi"]
        weight = each["count"] / (each["count"] + ENOUGH)
        now = F.coalesce(before + weight * (each["rssi"] - before), each["rssi"])
        return F.struct(each["gw"].alias("gw"), now.alias("rssi"), F.lit(0).alias("age"))

    silent = F.filter(
        state["known"],
        lambda old: ~F.exists(heard, lambda each: each["gw"] == old["gw"]) & (old["age"] + 1 < age),
    )
    aged = F.transform(
        silent,
        lambda old: F.struct(old["gw"].alias("gw"), old["rssi"].alias("rssi"), (old["age"] + 1).alias("age")),
    )
    known = F.concat(F.transform(heard, smoothed), aged)

    def decided(entry: Column) -> Column:
        known, best = entry["known"], entry["best"]
        own = F.get(F.filter(known, lambda each: each["gw"] == state["gw"]), F.lit(0))["rssi"]
        stays = best["rssi"] <= own + hysteresis  # null, which is no, without a gateway or if it is silent
        return F.struct(
            F.when(stays, state["gw"]).otherwise(best["gw"]).alias("gw"),
            (state["flaps"] + F.when(stays | state["gw"].isNull(), F.lit(0)).otherwise(F.lit(1))).alias(
                "flaps"
            ),
            known.alias("known"),
        )

    return _let(
        known,
        lambda all_known: _let(
            F.struct(all_known.alias("known"), _strongest(all_known).alias("best")), decided
        ),
    )


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once: written into an expression twice, it would be computed twice."""
    return F.transform(F.array(value), body)[0]


def gateways(beacons: DataFrame, routes: DataFrame, age: int = 2) -> DataFrame:
    """Rows of `tables.GATEWAYS`. Dead: silent for some slots, in which others heard devices that it had heard."""
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
