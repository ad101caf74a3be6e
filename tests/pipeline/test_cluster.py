"""The pipeline on a real standalone cluster, and by plain spark-submit: the same as in one process, row for row."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest

from tests.conftest import SHORT_LIVED
from tests.pipeline.conftest import Row
from tidegate import schema
from tidegate.lake.generate import GeneratedLevel, GenerateSettings, generate
from tidegate.pipeline import tables

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.serial, pytest.mark.long, pytest.mark.timeout(900)]
DEADLINE = 120.0


def environment() -> dict[str, str]:
    import tidegate

    source = str(Path(tidegate.__file__).parents[1])
    return os.environ | {
        "PYTHONPATH": source,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
    }


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A master or a worker; it is stopped in the end, whatever happens."""
    with log.open("wb") as out:
        command = [str(spark_home() / "bin" / "spark-class"), *arguments]
        with subprocess.Popen(command, stdout=out, stderr=out, env=environment()) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(DEADLINE)


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
    raise AssertionError(f"{pattern!r} is not in the log: {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers on loopback, from pyspark's own package; its address."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        log = folder / "master.log"
        package = "org.apache.spark.deploy"
        fixed = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = stack.enter_context(daemon(log, f"{package}.master.Master", *fixed))
        address = wait_for(log, r"Starting Spark master at (spark://[\d.]+:\d+)", master)
        for number in range(2):
            log = folder / f"worker-{number}.log"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            worker = stack.enter_context(daemon(log, f"{package}.worker.Worker", *fixed, *size, address))
            wait_for(log, r"(Successfully registered with master)", worker)
        yield address


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lakes") / "small"
    generate(
        lake,
        GenerateSettings(
            rows=8_000, hours=7, clients=60, devices=10, nodes=1, level=GeneratedLevel.MIXED, anomalies=0.1
        ),
    )
    return lake


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "pipeline", "run", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


def rows(out: Path, table: schema.Table) -> list[Row]:
    found = dataset.dataset(out / "findings" / table.name, format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: tuple(str(row[name]) for name in table.key))


def assert_same(one: Path, other: Path) -> None:
    """Sums of floats depend on their order in the last digits; everything else is equal."""
    for name, table in {**schema.POLICY_TABLES, **tables.FINDINGS}.items():
        if name in ("quality", "disagreements", "replayed"):
            continue
        mine, theirs = rows(one, table), rows(other, table)
        assert len(mine) == len(theirs), name
        for a, b in zip(mine, theirs, strict=True):
            assert {key: near(value) for key, value in a.items()} == b, name


def near(value: Any) -> Any:
    if isinstance(value, float) or (isinstance(value, list) and value and isinstance(value[0], float)):
        return pytest.approx(value, rel=1e-9, abs=1e-12)
    return value


def submit_locally(lake: Path, folder: Path) -> Path:
    """A run of plain spark-submit in one process, with the package from an archive alone; where its findings are."""
    from tidegate.pipeline.session import package
    from tidegate.pipeline.submit import PROGRAM

    archive = package(folder)
    bare = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    options = ["--master", "local[2]", "--driver-memory", "2g", "--conf", "spark.ui.enabled=false"]
    out = folder / "out"
    done = subprocess.run(
        [
            str(spark_home() / "bin" / "spark-submit"),
            *options,
            *("--py-files", str(archive)),
            str(PROGRAM),
            *("--lake", str(lake), "--out", str(out), "--policy", str(folder / "policy")),
        ],
        env=bare,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    # What the program itself says goes to standard output there, whatever it is.
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return out


def test_a_cluster_finds_what_one_process_finds(cluster: str, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "cluster"
    policy = out / "policy"
    version = run("--lake", str(small), "--out", str(out), "--policy", str(policy), "--master", cluster)
    assert (policy / "CURRENT").read_text().strip() == version
    assert_same(submit_locally(small, tmp_path), out)
