"""The loop: a fleet runs, the pipeline learns, and a broker that is up treats each client accordingly."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.broker.gate_traffic import publish
from tidegate.broker.flow_settings import Backoff
from tidegate.broker.recording import Level
from tidegate.broker.settings import Features
from tidegate.lake.settings import LakeSettings
from tidegate.mqtt import Publish
from tidegate.node import Node
from tidegate.pipeline import tables
from tidegate.policy import PolicySettings
from tidegate.settings import ListenerSettings, Settings
from tidegate.testing.raw import RawClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.pipeline.run import Ran
    from tidegate.pipeline.settings import PipelineSettings

pytestmark = pytest.mark.timeout(300)
SECONDS = 3.0
RATE = 20.0  # messages per second of the calm client
SPEEDS = {"fast": 1, "slow": 500}  # milliseconds that a message takes the members of the group
JOBS = 40


def settings(folder: Path, level: Level, backoff: Backoff) -> Settings:
    return Settings(
        listeners=(ListenerSettings(port=0),),
        lake=LakeSettings(path=str(folder / "lake"), level=level, window=1.0, roll_seconds=3600.0),
        policy=PolicySettings(path=str(folder / "policy"), poll=0.1),
        features=Features(sys_interval=0.2),
        backoff=backoff,
    )


def fleet(port: int) -> None:
    """One client that is a clock, and a group whose members report how fast they are."""
    with RawClient(port) as client, RawClient(port) as fast, RawClient(port) as slow:
        client.connect("calm")
        for worker, name in ((fast, "fast"), (slow, "slow")):
            worker.connect(name)
            worker.subscribe("$share/g/jobs")
        began = time.monotonic()
        for number in range(int(SECONDS * RATE)):
            # By the wall: the next message is due then, whatever the machine does meanwhile.
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            client.send_bytes(publish(number, topic="jobs"))
            if number % 10 == 0:
                for worker, name in ((fast, "fast"), (slow, "slow")):
                    report = b'{"msgsInQueue":0,"processingTimePerMsg":%d}' % SPEEDS[name]
                    worker.publish("$tide/load", report, qos=0)
        client.barrier()


def flood(port: int, name: str) -> None:
    with RawClient(port) as client:
        client.connect(name)
        for _ in range(5):
            client.send_bytes(b"".join(publish(number) for number in range(40)))
            client.barrier()


def first_jobs(port: int) -> dict[str, int]:
    """Messages that members get who came a moment ago and have reported nothing."""
    with RawClient(port) as fast, RawClient(port) as slow, RawClient(port) as publisher:
        for client, name in ((fast, "fast"), (slow, "slow"), (publisher, "boss")):
            client.connect(name)
        slow.subscribe("$share/g/jobs")
        fast.subscribe("$share/g/jobs")
        for number in range(JOBS):
            publisher.send_bytes(publish(number, topic="jobs"))
            publisher.barrier()
        return {name: len(client.barrier()) for client, name in ((fast, "fast"), (slow, "slow"))}


def told_version(port: int, version: str) -> None:
    """Wait until the broker says that this policy is in force."""
    with RawClient(port) as client:
        client.connect("operator")
        client.subscribe("$SYS/tide/policy/version")
        client.take(Publish, 20.0, payload=version.encode())


def record(folder: Path, backoff: Backoff) -> PipelineSettings:
    """What a node saw of the fleet; settings of the pipeline over it."""
    from tidegate.pipeline.settings import PipelineSettings

    async def yesterday() -> None:
        async with Node(settings(folder, Level.FULL, backoff)) as node:
            await asyncio.to_thread(fleet, node.broker.port)

    asyncio.run(yesterday())
    return PipelineSettings(lake=str(folder / "lake"), policy=str(folder / "policy"))


def assert_replay_agrees(spark: SparkSession, chosen: PipelineSettings) -> None:
    from tidegate.pipeline import io

    told = {row.source: row for row in io.read_finding(spark, chosen, tables.REPLAYED).collect()}
    assert {(row.disagreements, row.note) for row in told.values()} == {(0, "")}
    assert told["check"].compared >= 2 * SECONDS * RATE
    assert told["member"].compared >= SECONDS * RATE


def test_what_was_normal_yesterday_is_held_when_it_floods_today(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipeline.run import run

    chosen = record(tmp_path, Backoff())

    async def today() -> Ran:
        backoff = Backoff(always=True, floor_rate=0, d_max=0.2)
        async with Node(settings(tmp_path, Level.SUMMARY, backoff)) as node:
            port = node.broker.port
            gate = node.broker.core.gate
            assert gate is not None
            assert node.broker.core.policy_version == ""
            ran = await asyncio.to_thread(run, spark, chosen)
            await asyncio.to_thread(told_version, port, ran.version)
            await asyncio.to_thread(flood, port, "stranger")
            assert gate.holds == 0  # nothing is known of it
            await asyncio.to_thread(flood, port, "calm")
            assert gate.holds > 0
            got = await asyncio.to_thread(first_jobs, port)
            assert sum(got.values()) == JOBS
            assert got["slow"] <= JOBS // 10 < got["fast"]
            return ran

    ran = asyncio.run(today())
    assert ran.issues == []  # files of a recorder are sound
    assert_replay_agrees(spark, chosen)


def test_the_thesis_policy_is_computed_again_too(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipeline.run import run

    chosen = record(tmp_path, Backoff(policy="paper", paper_d_max=0.01))
    run(spark, chosen, ["replay"])
    assert_replay_agrees(spark, chosen)
