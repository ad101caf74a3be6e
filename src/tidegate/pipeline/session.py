"""A Spark session for the jobs: one place for the settings that bite, with their reasons."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import tidegate
from tidegate.pipeline.errors import PipelineError, told

LOCAL_MASTER: Final = "local[*]"
CONFIG: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # A recorder's files are small; opening one is cheaper than Spark thinks, so that tasks get several.
    "spark.sql.files.openCostInBytes": "262144",
    # About one large file to a task: what is summed by client then stays in a processor's cache, which halves the cost.
    "spark.sql.files.maxPartitionBytes": "16777216",
    # Files are listed and checked before Spark sees them; it need not start a job to list them again.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A client's histogram is a collected list: falling back to sorting after 128 groups would sort everything.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
}
# Where a user's own choice of a collector may stand; Java ends at once when it is told two.
JAVA_VARIABLES: Final = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)


def start(master: str = LOCAL_MASTER, *, memory: str = "4g", app: str = "tidegate") -> SparkSession:
    """A session on this master; one that runs already is used as it is. Raises `PipelineError`."""
    # Workers on this machine must be the interpreter that runs us, and a host name may resolve to anything.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local or "127.0.0.1" in master or "localhost" in master:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app).master(master).config("spark.driver.memory", memory)
    for key, value in {**CONFIG, **collector()}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise PipelineError(
            f"Spark does not start on {master}: {told(error)}",
            "Java 17 must be on the path"
            if is_local
            else "is there a Spark master of this version? --master 'local[2]' needs none",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    if not is_local:
        ship(session)
    return session


def collector() -> dict[str, str]:
    """Java's default collector has threads of its own, which take a fifth of few cores."""
    is_chosen = any("GC" in os.environ.get(name, "") for name in JAVA_VARIABLES)
    home = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    if is_chosen or Path(home, "spark-defaults.conf").exists():
        return {}
    return {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}


def ship(session: SparkSession) -> None:
    """Give the workers of a cluster this package: replay runs the policies of `flow/` there."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    session.sparkContext.addPyFile(str(package(folder)))


def package(folder: Path) -> Path:
    """The package's sources as a zip file that Python imports from; also for `spark-submit --py-files`."""
    root = Path(tidegate.__file__).parent
    archive = folder / "tidegate.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(root.rglob("*.py")):
            out.write(path, str(Path("tidegate") / path.relative_to(root)))
    return archive
