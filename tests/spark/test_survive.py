"""A small version of `python -m bench.spark.survive`, which kills the driver as well: nothing is lost."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from bench.soak.broker import BrokerProcess
from bench.spark.driver import start_query
from bench.spark.survive import committed, publish
from tests.spark.conftest import DEADLINE, wait_until
from tidegate.spark.segments import Spool

MESSAGES = 15_000


def test_nothing_is_lost_when_the_receiving_process_and_the_broker_are_killed(
    session: SparkSession, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool")
    acknowledged: list[None] = []
    with BrokerProcess(f"data={tmp_path}/broker") as broker, ThreadPoolExecutor(1) as thread:
        url = f"mqtt://127.0.0.1:{broker.port}"
        query = start_query(session, url, str(tmp_path))
        try:
            wait_until(lambda: spool.read_json("status.json").get("state") == "connected", "a connection")
            publishing = thread.submit(asyncio.run, publish(url, MESSAGES, lambda: acknowledged.append(None)))
            wait_until(lambda: spool.end() >= MESSAGES // 4, "a quarter of the rows")
            os.kill(spool.read_json("status.json")["pid"], signal.SIGKILL)
            wait_until(lambda: len(acknowledged) >= MESSAGES // 2, "half of the messages")
            broker.kill()
            broker.start()
            publishing.result(DEADLINE)
            wait_until(lambda: len(set(committed(tmp_path))) == MESSAGES, "every event")
        finally:
            query.stop()
    assert set(committed(tmp_path)) == set(range(MESSAGES))
    assert len(acknowledged) == MESSAGES
