"""All jobs in order, and the snapshot at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate import schema
from tidegate.pipeline import io
from tidegate.pipeline.errors import NothingToRead, PipelineError, UnknownJob, told
from tidegate.pipeline.inventory import USUAL, Issue, take_inventory
from tidegate.pipeline.jobs import (
    baselines,
    control,
    hourly,
    members,
    placement,
    quality,
    replay,
    routes,
    rpc,
    topics,
)
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.words import counted

Job = Callable[[SparkSession, PipelineSettings], object]
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)  # the second: what Spark has no name for
JOBS: Final[Mapping[str, Job]] = {
    "hourly": hourly.main,
    "baselines": baselines.main,
    "topics": topics.main,
    "placement": placement.main,
    "members": members.main,
    "routes": routes.main,
    "rpc": rpc.main,
    "control": control.main,
    "replay": replay.main,
    "quality": quality.main,
}
# Jobs that need nothing of each other run side by side: each is many small steps, between which a core would be idle.
WAVES: Final = (
    ("hourly",),
    ("baselines", "topics", "members", "routes", "rpc", "control", "replay", "quality"),
    ("placement",),
)
AT_ONCE: Final = 3


@dataclass(slots=True, kw_only=True)
class Ran:
    """Seconds by job, of which some run side by side, and in all; the version written; what is wrong with the input,
    and, as `again`, which hours of which tables were computed once more.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    total: float = 0.0
    version: str = ""
    issues: list[Issue] = field(default_factory=list)
    again: list[Issue] = field(default_factory=list)

    def remarks(self, settings: PipelineSettings) -> list[str]:
        """Lines for who started it; none if there is nothing to say."""
        found = []
        if self.again:
            tables, hours = ({getattr(each, name) for each in self.again} for name in ("table", "subject"))
            were = "was" if len(tables) == 1 else "were"
            found.append(
                f"{counted(len(tables), 'table')} of {counted(len(hours), 'hour')} {were} computed again: "
                "files came or went"
            )
        if self.issues:
            are = "is" if len(self.issues) == 1 else "are"
            out = f" --out {settings.out}" if settings.out else ""
            found.append(
                f"{counted(len(self.issues), 'thing')} {are} wrong with the input: "
                f"tidegate pipeline report --lake {settings.lake}{out} shows the data quality"
            )
        return found


def run(
    spark: SparkSession,
    settings: PipelineSettings,
    jobs: Sequence[str] = (),
    progress: Callable[[str, float], None] | None = None,
    *,
    has_policy: bool = True,
) -> Ran:
    """Run these jobs, all without any, and write a policy snapshot. Raises `PipelineError`."""
    chosen = list(jobs) or list(JOBS)
    for name in chosen:
        if name not in JOBS:
            raise UnknownJob(name, list(JOBS))
    writes_policy = has_policy and not jobs
    if writes_policy:
        _ = settings.policy_folder  # raises now rather than after all jobs
    io.use_utc(spark)
    done = Ran()
    found: list[Issue] = []
    started = time.monotonic()

    def work(name: str) -> None:
        began = time.monotonic()
        result = attempt(spark, settings, name, found)
        if name == "hourly" and isinstance(result, list):
            found[:] = result
            done.issues = [each for each in result if each.kind not in USUAL]
            done.again = [each for each in result if each.kind == "late"]
            _require_publish(spark, settings)
        finish(name, began)

    def finish(name: str, began: float) -> None:
        done.seconds[name] = time.monotonic() - began
        if progress is not None:
            progress(name, done.seconds[name])

    for wave in WAVES:
        with ThreadPoolExecutor(AT_ONCE, "tidegate-job") as pool:
            for ended in [pool.submit(work, name) for name in wave if name in chosen]:
                ended.result()
    if writes_policy:
        began = time.monotonic()
        done.version = write_policy(spark, settings)
        finish("policy", began)
    done.total = time.monotonic() - started
    return done


def attempt(spark: SparkSession, settings: PipelineSettings, name: str, issues: list[Issue]) -> object:
    """A lake is written, compacted and pruned while it is read: a file that went away is looked for once more."""
    for is_last in (False, True):
        try:
            if name == "quality":
                quality.main(spark, settings, issues)
                return None
            return JOBS[name](spark, settings)
        except SPARK_ERRORS as error:
            text = str(error)
            if not is_last and (
                "FILE_NOT_EXIST" in text or "does not exist" in text or "FileNotFound" in text
            ):
                continue
            raise failure(f"job {name}", error) from error
    return None


def failure(what: str, error: Exception) -> PipelineError:
    """What Spark says of itself, in one line."""
    return PipelineError(f"{what} failed: {told(error)}", "tidegate pipeline report shows the data quality")


def _require_publish(spark: SparkSession, settings: PipelineSettings) -> None:
    if io.read_aggregate(spark, settings, "nodes").isEmpty():
        raise _nothing(settings)


def require_publish(settings: PipelineSettings) -> None:
    """Raises `PipelineError` if there is no lake or nothing in it: better said before Spark starts."""
    if not take_inventory(settings.lake, schema.PUBLISH, settings.since, settings.until).files:
        raise _nothing(settings)


def _nothing(settings: PipelineSettings) -> NothingToRead:
    is_bounded = settings.since is not None or settings.until is not None
    return NothingToRead(settings.lake, schema.PUBLISH.name, is_bounded=is_bounded)


def write_policy(spark: SparkSession, settings: PipelineSettings) -> str:
    """Write what was found as a snapshot, make it current, and give its version."""
    from tidegate.policy import PolicyStore

    nodes = io.read_aggregate(spark, settings, "nodes").select(
        F.expr("CAST(unix_date(date) AS BIGINT) * 24 + hour").alias("h")
    )
    span = nodes.agg(F.min("h").alias("low"), F.max("h").alias("high")).first()
    if span is None or span.low is None:
        raise _nothing(settings)
    found = {
        name: io.read_finding(spark, settings, table).toArrow()
        for name, table in schema.POLICY_TABLES.items()
    }
    store = PolicyStore(settings.policy_folder)
    manifest = store.write(
        {name: rows for name, rows in found.items() if rows.num_rows},
        input_from=datetime.fromtimestamp(span.low * 3600, UTC),
        input_to=datetime.fromtimestamp((span.high + 1) * 3600, UTC),
        notes=f"learnt from {settings.lake}",
    )
    store.activate(manifest.version)
    return manifest.version
