"""The loop: a fleet runs, the pipeline learns, and the broker treats each client accordingly."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.broker.gate_traffic import publish
from tidegate.broker.flow_settings import Backoff
from tidegate.broker.recording import Level
from tidegate.lake.settings import LakeSettings
from tidegate.node import Node
from tidegate.pipeline import tables
from tidegate.policy import PolicySettings
from tidegate.settings import ListenerSettings, Settings
from tidegate.testing.raw import RawClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
SECONDS = 3.0
RATE = 20.0  # messages per second of the calm client


def settings(folder: Path, level: Level, backoff: Backoff) -> Settings:
    return Settings(
        listeners=(ListenerSettings(port=0),),
        lake=LakeSettings(path=str(folder / "lake"), level=level, window=1.0, roll_seconds=3600.0),
        policy=PolicySettings(path=str(folder / "policy"), poll=0.1),
        backoff=backoff,
    )


def calm_traffic(port: int) -> None:
    """One client that is a clock; the next message is due by the wall, whatever the machine does meanwhile."""
    with RawClient(port) as client:
        client.connect("calm")
        began = time.monotonic()
        for number in range(int(SECONDS * RATE)):
            due = began + number / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            client.send_bytes(publish(number))
        client.barrier()


def flood(port: int, name: str) -> None:
    with RawClient(port) as client:
        client.connect(name)
        for _ in range(5):
            client.send_bytes(b"".join(publish(number) for number in range(40)))
            client.barrier()


@pytest.mark.parametrize("policy", ["adaptive", "paper"])
def test_what_was_normal_yesterday_is_held_when_it_floods_today(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    from tidegate.pipeline import io
    from tidegate.pipeline.run import run
    from tidegate.pipeline.settings import PipelineSettings

    async def yesterday() -> None:
        async with Node(settings(tmp_path, Level.FULL, Backoff(policy=policy, paper_d_max=0.01))) as node:
            assert node.broker.core.policy_version is None
            await asyncio.to_thread(calm_traffic, node.broker.port)

    asyncio.run(yesterday())
    chosen = PipelineSettings(lake=str(tmp_path / "lake"), policy=str(tmp_path / "policy"))
    ran = run(spark, chosen)
    [told] = io.read_finding(spark, chosen, tables.REPLAYED).where("source = 'check'").collect()
    assert (told.disagreements, told.note) == (0, "")
    assert told.compared >= 2 * SECONDS * RATE
    if policy == "paper":
        return

    async def today() -> None:
        backoff = Backoff(always=True, floor_rate=0, d_max=0.2)
        async with Node(settings(tmp_path, Level.SUMMARY, backoff)) as node:
            assert node.broker.core.policy_version == ran.version
            gate = node.broker.core.gate
            assert gate is not None
            await asyncio.to_thread(flood, node.broker.port, "stranger")
            assert gate.holds == 0  # nothing is known of it
            await asyncio.to_thread(flood, node.broker.port, "calm")
            assert gate.holds > 0

    asyncio.run(today())
