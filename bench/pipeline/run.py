"""`python -m bench.pipeline.run`: seconds of the pipeline over made-up lakes, with a bare scan beside them.

Everything is measured in one Spark session on two cores; the bare scan reads the columns that `hourly` reads, of all
tables, once and into nothing. The window version computes one part of what `hourly` and `baselines` do (rate, median
and deviation of gaps by client). Results go to bench/results/pipeline.json, and as a table to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark import __version__ as spark_version
from pyspark.sql import DataFrame, SparkSession

from bench.pipeline.windows import client_gaps
from tidegate import schema
from tidegate.lake.generate import GenerateSettings, generate
from tidegate.pipeline import io
from tidegate.pipeline.inventory import take_inventory
from tidegate.pipeline.jobs import hourly
from tidegate.pipeline.run import run
from tidegate.pipeline.session import start
from tidegate.pipeline.settings import PipelineSettings

COLUMNS = (
    "node",
    "ts",
    "lost",
    "client_id",
    "topic",
    "window_us",
    "count",
    "bytes",
    "first",
    "last",
    "gap_us",
)
LEARNING = ("baselines", "topics", "placement", "members", "routes", "rpc", "control")


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def columns_read(frame: DataFrame) -> set[str]:
    """Columns that Spark's plan for a frame takes out of files."""
    leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.size())]
    return {
        name
        for each in scans
        if each.nodeName().startswith("Scan parquet")
        for name in each.requiredSchema().fieldNames()
    }


def measure(spark: SparkSession, lake: Path, out: Path, rows: int, has_windows: bool) -> dict[str, Any]:
    made = 0.0 if lake.exists() else seconds(lambda: generate(lake, GenerateSettings(rows=rows)))
    settings = PipelineSettings(lake=str(lake), out=str(out), policy=str(out / "policy"), is_full=True)
    inventory = take_inventory(settings.lake, schema.PUBLISH)
    raw = io.read_raw(spark, settings.lake, inventory)
    bare = [raw.select(*COLUMNS)]
    for table, targets in hourly.SIMPLE:
        frame = io.read_raw(spark, settings.lake, take_inventory(settings.lake, table))
        read = {name for _, transform in targets for name in columns_read(transform(frame))}
        if read:
            bare.append(frame.select(*sorted(read)))

    def scan() -> None:
        for each in bare:
            each.write.format("noop").mode("overwrite").save()

    first = seconds(scan)  # fills the page cache, and is not counted
    scans = [seconds(scan) for _ in range(3)]
    result: dict[str, Any] = {
        "rows": inventory.rows,
        "bytes": sum(each.size for each in inventory.files),
        "generate": made,
        "first_scan": first,
        "scan": sorted(scans)[1],
    }
    done = run(
        spark, settings, progress=lambda name, took: print(f"  {name:<10} {took:7.1f} s", file=sys.stderr)
    )
    result["jobs"] = done.seconds
    result["all_jobs"] = done.total
    # Again from the aggregates alone, as the first run warmed nothing up that a nightly job would have warm.
    learned = run(spark, replace(settings, is_full=False), ["hourly", *LEARNING])
    result["learning"] = learned.total + done.seconds["policy"]
    if has_windows:
        frame = raw.select("client_id", "ts")
        result["windows"] = seconds(lambda: client_gaps(frame).write.format("noop").mode("overwrite").save())
    return result


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| rows | scan s | hourly s | over scan | aggregates to policy s | all jobs s | window functions s |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in results:
        jobs = each["jobs"]
        windows = f"{each['windows']:.1f}" if "windows" in each else "–"
        lines.append(
            f"| {each['rows']:,} | {each['scan']:.1f} | {jobs['hourly']:.1f} | {jobs['hourly'] / each['scan']:.1f} × "
            f"| {each['learning']:.1f} | {each['all_jobs']:.1f} | {windows} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help="default: 5 and 50 million")
    parser.add_argument("--memory", default="10g")
    parser.add_argument(
        "--lakes",
        type=Path,
        help="folder of the lakes, made if they are missing, and kept; default: none is kept",
    )
    parser.add_argument("--no-windows", action="store_true", help="leave the slow version out")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent.parent / "results" / "pipeline.json"
    )
    given = parser.parse_args()
    spark = start("local[2]", memory=given.memory)
    results = []
    for rows in given.rows or [5_000_000, 50_000_000]:
        folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
        try:
            lake = (given.lakes or folder) / f"rows-{rows}"
            results.append(measure(spark, lake, folder / "out", rows, not given.no_windows))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    spark.stop()
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "spark": spark_version,
        "command": " ".join(("python -m bench.pipeline.run", *sys.argv[1:])),
        "results": results,
    }
    given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
