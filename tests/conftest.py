"""The one Spark session of a test run: started by the first test that asks for it, in one process.

A session takes ten seconds to start and half a gigabyte, so tests share it: use `spark`, leave no query running, and
give tables and folders names of your own. Tests that use it carry the mark `spark` and run after those that several
workers share; whole runs of the pipeline carry `long` as well and are left to `make long`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings as hypothesis_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Deadlines for an example measure the machine; the timeout of the whole test is what stops a hang.
hypothesis_settings.register_profile("no-deadline", deadline=None)
hypothesis_settings.load_profile("no-deadline")

# Who is started in the background by a shell ignores Ctrl-C, and so would everybody started here; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Operators' sockets of nodes lie here, and not among those of the user who runs the tests.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="tidegate-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)

# A test's plans run once: the second compiler of the virtual machine costs more than it gains.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if "found" in fixtures:
            item.add_marker(pytest.mark.long)  # a run of the whole pipeline over most of two days


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session, in UTC; skipped where `tidegate[spark]` is not installed."""
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    # Workers must be this interpreter, and Spark must not ask the resolver for the name of this machine.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from tidegate.pipeline.session import CONFIG

    folder = tmp_path_factory.mktemp("spark")
    settings = CONFIG | {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} {SHORT_LIVED}",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    builder = SparkSession.builder.master("local[2]").appName("tidegate tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
