"""A Spark session for the jobs: one place for the settings that bite, with their reasons."""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import tidegate
from tidegate.pipeline.errors import PipelineError

LOCAL_MASTER: Final = "local[*]"
CONFIG: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # A recorder's files are small; opening one is cheaper than Spark thinks, so that tasks get several.
    "spark.sql.files.openCostInBytes": "262144",
    "spark.sql.files.maxPartitionBytes": "67108864",
    # Files are listed and checked before Spark sees them; it need not start a job to list them again.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A client's histogram is a collected list: falling back to sorting after 128 groups would sort everything.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
}


def start(master: str = LOCAL_MASTER, *, memory: str = "4g", app: str = "tidegate") -> SparkSession:
    """A session on this master; one that runs already is used as it is. Raises `PipelineError`."""
    # Workers on this machine must be the interpreter that runs us, and a host name may resolve to anything.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local or "127.0.0.1" in master or "localhost" in master:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app).master(master).config("spark.driver.memory", memory)
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        first = (str(error).strip().splitlines() or ["unknown"])[0]
        raise PipelineError(
            f"Spark does not start on {master}: {first}",
            "Java 17 must be on the path; try --master 'local[2]'",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    if not is_local:
        ship(session)
    return session


def ship(session: SparkSession) -> None:
    """Give the workers of a cluster this package: replay runs the policies of `flow/` there."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
    archive = package(folder)
    session.sparkContext.addPyFile(str(archive))


def package(folder: Path) -> Path:
    """The package's sources as a zip file that Python imports from; also for `spark-submit --py-files`."""
    root = Path(tidegate.__file__).parent
    archive = folder / "tidegate.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(root.rglob("*.py")):
            out.write(path, str(Path("tidegate") / path.relative_to(root)))
    return archive
