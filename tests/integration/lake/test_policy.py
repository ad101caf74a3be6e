"""A running node takes what the pipeline learnt, and keeps what it has when that is damaged."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.broker.gate_traffic import publish
from tests.integration.lake.conftest import rows_of
from tidegate.broker.flow_settings import Backoff
from tidegate.broker.recording import Level
from tidegate.broker.settings import Features
from tidegate.lake.settings import LakeSettings
from tidegate.node import Node
from tidegate.policy import PolicySettings, PolicyStore
from tidegate.settings import ListenerSettings, Settings
from tidegate.testing.raw import RawClient


def baselines(rates: dict[str, float]) -> pa.Table:
    count = len(rates)
    return pa.table(
        {
            "client_id": list(rates),
            "rate": list(rates.values()),
            "dispersion": [0.05] * count,
            "limit": [0.0] * count,
            "rank": list(range(1, count + 1)),
            "messages": [1000] * count,
        }
    )


def learnt(
    folder: Path, version: str, rates: dict[str, float], speeds: dict[str, float] | None = None
) -> PolicyStore:
    store = PolicyStore(folder)
    tables = {"baselines": baselines(rates)}
    if speeds:
        count = len(speeds)
        tables["members"] = pa.table(
            {
                "group": ["g"] * count,
                "client_id": list(speeds),
                "service": list(speeds.values()),
                "variability": [0.0] * count,
                "messages": [9] * count,
            }
        )
    now = datetime.now(UTC)
    store.write(tables, input_from=now, input_to=now, version=version)
    store.activate(version)
    return store


def node_settings(tmp_path: Path, **more: Any) -> Settings:
    return Settings(
        listeners=(ListenerSettings(port=0),),
        lake=LakeSettings(path=str(tmp_path / "lake"), level=Level.SUMMARY, roll_seconds=3600.0),
        policy=PolicySettings(path=str(tmp_path / "policy"), poll=0.1),
        **more,
    )


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


def in_thread(function: Callable[[], None]) -> Awaitable[None]:
    return asyncio.to_thread(function)


def test_a_learnt_client_is_held_on_its_first_flooding_second(tmp_path: Path) -> None:
    learnt(tmp_path / "policy", "v1", {"calm": 1.0})

    async def main() -> None:
        flow = Backoff(always=True, floor_rate=0, d_max=0.2)
        async with Node(node_settings(tmp_path, backoff=flow)) as node:
            assert node.broker.core.policy_version == "v1"
            port = node.broker.port

            def flood(name: str) -> None:
                with RawClient(port) as client:
                    client.connect(name)
                    for _ in range(3):
                        client.send_bytes(b"".join(publish(number) for number in range(20)))
                        client.barrier()

            await in_thread(lambda: flood("stranger"))
            gate = node.broker.core.gate
            assert gate is not None
            assert gate.holds == 0  # nothing is known of it
            await in_thread(lambda: flood("calm"))
            assert gate.holds > 0

    asyncio.run(main())
    held = {row["client_id"] for row in rows_of(tmp_path / "lake", "check") if row["kind"] == "hold"}
    assert held == {"calm"}
    [taken] = [row for row in rows_of(tmp_path / "lake", "action") if row["kind"] == "policy"]
    assert (taken["dst"], taken["is_done"]) == ("v1", True)


def test_a_new_member_starts_with_its_learnt_speed(tmp_path: Path) -> None:
    learnt(tmp_path / "policy", "v1", {"x": 1.0}, {"fast": 0.001, "slow": 0.5})

    async def main() -> None:
        async with Node(node_settings(tmp_path)) as node:
            port = node.broker.port
            received = {}

            def work() -> None:
                with RawClient(port) as fast, RawClient(port) as slow, RawClient(port) as pub:
                    for client, name in ((fast, "fast"), (slow, "slow"), (pub, "pub")):
                        client.connect(name)
                    fast.subscribe("$share/g/t")
                    slow.subscribe("$share/g/t")
                    for number in range(40):
                        pub.send_bytes(publish(number))
                        pub.barrier()
                    for client, name in ((fast, "fast"), (slow, "slow")):
                        received[name] = len(client.barrier())

            await in_thread(work)
            assert sum(received.values()) == 40
            assert received["slow"] <= 10 < received["fast"]

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["flip", "pointer", "missing"])
def test_what_is_damaged_is_not_taken_and_the_old_one_stays(tmp_path: Path, damage: str) -> None:
    store = learnt(tmp_path / "policy", "v1", {"a": 7.0})

    async def main() -> None:
        async with Node(node_settings(tmp_path)) as node:
            core = node.broker.core
            assert core.policy_version == "v1"
            learnt(tmp_path / "policy", "v2", {"a": 8.0})
            await until(lambda: core.policy_version == "v2")
            assert node.statistics()["policy_version"] == "v2"
            if damage == "flip":
                now = datetime.now(UTC)
                store.write({"baselines": baselines({"a": 9.0})}, input_from=now, input_to=now, version="v3")
                path = tmp_path / "policy" / "v3" / "baselines.parquet"
                path.write_bytes(path.read_bytes()[:-1] + b"?")
                (tmp_path / "policy" / "CURRENT").write_text("v3\n")
            elif damage == "pointer":
                (tmp_path / "policy" / "CURRENT").write_bytes(b"\xff\xfe../..")
            else:
                (tmp_path / "policy" / "CURRENT").write_text("v9\n")
            await until(lambda: node.statistics()["policy_faults"] >= 1)
            assert core.policy_version == "v2"
            assert core.gate is not None
            assert core.gate.priors["a"].rate == 8.0
            store.activate("v1") if damage != "pointer" else (tmp_path / "policy" / "CURRENT").write_text(
                "v1\n"
            )
            await until(lambda: core.policy_version == "v1")

    asyncio.run(main())
    refused = [r for r in rows_of(tmp_path / "lake", "action") if r["kind"] == "policy" and not r["is_done"]]
    assert len(refused) == 1
    assert refused[0]["src"] == "v2"


def test_the_version_is_told_in_sys(tmp_path: Path) -> None:
    learnt(tmp_path / "policy", "v1", {"a": 7.0})

    async def main() -> None:
        async with Node(node_settings(tmp_path, features=Features(sys_interval=0.2))) as node:
            port = node.broker.port

            def read() -> None:
                from tidegate.mqtt import Publish

                with RawClient(port) as client:
                    client.connect("reader")
                    client.subscribe("$SYS/tide/policy/version")
                    assert client.expect(Publish, 20.0).payload == b"v1"

            await in_thread(read)

    asyncio.run(main())
