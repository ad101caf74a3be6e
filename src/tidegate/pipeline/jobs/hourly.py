"""Raw tables to hourly aggregates, only for hours whose files are not those of the run before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from tidegate import schema
from tidegate.pipeline import io, tables
from tidegate.pipeline.inventory import Inventory, Issue, take_inventory
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import hourly

AT_ONCE: Final = 2
# Raw table: what is made of it, publish apart.
SIMPLE: tuple[tuple[schema.Table, tuple[tuple[schema.Table, Callable[[DataFrame], DataFrame]], ...]], ...] = (
    (schema.LOAD, ((tables.LOADS, hourly.loads),)),
    (schema.DELIVER, ((tables.FANOUT, hourly.fanout), (tables.SUBSCRIBERS, hourly.subscribers))),
    (schema.QUEUE, ((tables.QUEUES, hourly.queues),)),
    (schema.MEMBER, ((tables.MEMBER_HOURS, hourly.members),)),
    (schema.RPC, ((tables.RPC_HOPS, hourly.rpc_hops), (tables.RPC_OUTCOMES, hourly.rpc_outcomes))),
    (schema.BEACON, ((tables.BEACONS, hourly.beacons),)),
    (schema.CHECK, ((tables.CONTROL_HOURS, hourly.control), (tables.GATE, hourly.gate))),
)


def main(spark: SparkSession, settings: PipelineSettings) -> list[Issue]:
    """Returns what is wrong with the input; `report` shows it."""
    before = {} if settings.is_full else io.read_state(settings)
    after = dict(before)
    issues: list[Issue] = []

    def work(table: schema.Table) -> None:
        inventory = take_inventory(settings.lake, table, *_bounds(table, settings))
        issues.extend(inventory.issues)
        now = inventory.fingerprints()
        known = before.get(table.name, {})
        changed = [hour for hour in inventory.hours if known.get(_name(hour)) != now[_name(hour)]]
        issues.extend(_late(table.name, changed, known))
        if not changed:
            return
        if table is schema.PUBLISH:
            _publish(spark, settings, inventory, changed)
        else:
            made = next(made for each, made in SIMPLE if each is table)
            raw = io.read_raw(spark, settings.lake, inventory.within(changed))
            for target, transform in made:
                io.write_aggregate(transform(raw), settings, target)
        after[table.name] = known | {_name(hour): now[_name(hour)] for hour in changed}

    # Small tables fill the time in which a core would wait for the steps of the large one.
    with ThreadPoolExecutor(AT_ONCE, "tidegate-hourly") as pool:
        for ended in [pool.submit(work, table) for table in (schema.PUBLISH, *(each for each, _ in SIMPLE))]:
            ended.result()
    # Last, so that a run that fails half way is done again.
    io.write_state(settings, after)
    return sorted(issues, key=lambda each: (each.table, each.kind, each.subject))


def _publish(
    spark: SparkSession, settings: PipelineSettings, inventory: Inventory, changed: list[datetime]
) -> None:
    new = inventory.within(changed)
    traffic = hourly.traffic(*_levels(spark, settings, new)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        io.write_aggregate(hourly.clients(traffic), settings, tables.CLIENTS)
        io.write_aggregate(hourly.topics(traffic), settings, tables.TOPIC_HOURS)
        io.write_aggregate(hourly.nodes(traffic), settings, tables.NODES)
    finally:
        traffic.unpersist()
    # A histogram covers some hours together, so all of those are read again.
    width = settings.gap_hours
    parts = {(hour.date(), hour.hour // width) for hour in changed}
    whole = [hour for hour in inventory.hours if (hour.date(), hour.hour // width) in parts]
    io.write_aggregate(
        hourly.gaps(*_levels(spark, settings, inventory.within(whole)), width), settings, tables.GAPS
    )
    topics = io.read_aggregate(spark, settings, "topics")
    wanted = hourly.topics_that_matter(topics, settings.top_topics)
    raw = io.read_raw(spark, settings.lake, new)
    io.write_aggregate(hourly.seconds(raw, wanted), settings, tables.SECONDS)


def _levels(spark: SparkSession, settings: PipelineSettings, files: Inventory) -> tuple[DataFrame, DataFrame]:
    """Rows of files at level full, and at level summary: so that no file is read by a plan that wants none of it."""
    full = io.read_raw(spark, settings.lake, files.at_level("full"))
    return full, io.read_raw(spark, settings.lake, files.at_level("summary"))


def _bounds(table: schema.Table, settings: PipelineSettings) -> tuple[datetime | None, datetime | None]:
    """For publish all hours of a histogram: one that was made of some of them would be wrong."""
    since, until = settings.since, settings.until
    if table is not schema.PUBLISH:
        return since, until
    width = settings.gap_hours
    if since is not None:
        since = since.replace(hour=since.hour // width * width, minute=0, second=0, microsecond=0)
    if until is not None:
        last = until - timedelta(microseconds=1)
        until = last.replace(hour=0, minute=0, second=0, microsecond=0)
        until += timedelta(hours=(last.hour // width + 1) * width)
    return since, until


def _name(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H}"


def _late(table: str, changed: list[datetime], known: dict[str, str]) -> list[Issue]:
    """Hours that a run before had already, and that are different now."""
    return [
        Issue(
            kind="late",
            table=table,
            subject=_name(hour),
            count=1,
            detail="files came or went: computed again",
        )
        for hour in changed
        if _name(hour) in known
    ]
