"""The autoscaler with processes, and what strangers may tell it."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.integration.rpc.support import run, until
from tidegate.cli.rpc_options import Common
from tidegate.rpc import Options
from tidegate.rpc.autoscale import Sample, Scale
from tidegate.rpc.backends import make_queue
from tidegate.rpc.scaler import STATS, Scaler

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
FORGED = [
    b"[]",
    b"[" * 9000,
    b'{"taken": 1e999, "arrivals": 1, "longest": 1, "busy": 1}',
    b'{"taken": 1, "arrivals": 1e999, "longest": 1, "busy": 1}',
    b'{"taken": 1, "arrivals": 1, "longest": NaN, "busy": 1}',
    b'{"taken": 1, "arrivals": 1, "longest": 1, "busy": -1}',
    b'{"taken": 1, "arrivals": 1e308, "longest": 1, "busy": 1}',
]


@pytest.mark.parametrize("note", FORGED, ids=lambda note: repr(note[:60]))
def test_a_forged_note_stops_no_router(mqtt_options: Options, note: bytes) -> None:
    async def scenario() -> None:
        turns: list[Sample] = []
        scaler = Scaler(
            mqtt_options, Scale(), SLEEPER, every=0.05, told=lambda sample, wanted: turns.append(sample)
        )
        running = asyncio.create_task(scaler.run())
        queue = make_queue(mqtt_options, "stranger")
        await queue.open()
        await until(lambda: turns, "the first turn")
        for _ in range(2):
            await queue.announce(STATS, note)
        await until(lambda: scaler.counters["malformed"] == 2, "the note")
        before = len(turns)
        await until(lambda: len(turns) > before + 2, "more turns")
        assert (scaler.replicas, scaler.counters["stopped"]) == (1, 0) and not running.done()
        running.cancel()
        await asyncio.wait([running])
        await queue.close()

    run(scenario())


def test_a_turn_that_fails_ends_nothing(mqtt_options: Options) -> None:
    async def scenario() -> None:
        turns = 0

        def told(sample: Sample, wanted: int) -> None:
            nonlocal turns
            turns += 1
            if turns < 3:
                raise OSError("nobody reads this")

        scaler = Scaler(mqtt_options, Scale(), SLEEPER, every=0.05, told=told)
        running = asyncio.create_task(scaler.run())
        await until(lambda: turns > 4, "more turns")
        assert (scaler.replicas, scaler.counters["failed"]) == (1, 2)
        running.cancel()
        await asyncio.wait([running])

    run(scenario())


def test_two_machines_scale_beside_each_other(mqtt_options: Options) -> None:
    async def scenario() -> None:
        note = {"taken": 7, "arrivals": 7.0, "longest": 0.0, "busy": 0.0}
        turns: list[list[Sample]] = [[], []]
        scalers = [
            Scaler(
                mqtt_options, Scale(), SLEEPER, every=0.05, told=lambda sample, _, own=own: own.append(sample)
            )
            for own in turns
        ]
        running = [asyncio.create_task(scaler.run()) for scaler in scalers]
        await until(lambda: all(turns), "both")
        queue = make_queue(mqtt_options, "router")
        await queue.open()
        await queue.announce(STATS, json.dumps(note).encode())
        await until(
            lambda: all(any(sample.arrivals == 7.0 for sample in own) for own in turns), "both to be told"
        )
        assert len({scaler._queue._name for scaler in scalers}) == 2  # type: ignore[attr-defined]
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await queue.close()

    run(scenario())


def test_passwords_are_on_no_command_line(mqtt_options: Options, tmp_path: Path) -> None:
    common = Common(
        url=mqtt_options.url,
        backend="mqtt",
        amqp="amqp://user:hidden@rabbit/",
        redis="redis://:hidden@redis",
        namespace="main",
        types=None,
        secret_file=None,
        default_gateway="",
        window=10,
        username=None,
        password_file=None,
        trace=None,
        trace_sample=1.0,
        telemetry=False,
    )
    assert "hidden" not in " ".join(common.arguments())
    write = (
        "import os, sys, time; open(sys.argv[1], 'w').write(os.environ['TIDEGATE_RPC_AMQP']); time.sleep(600)"
    )
    told = tmp_path / "told"

    async def scenario() -> None:
        command = [sys.executable, "-c", write, str(told)]
        scaler = Scaler(mqtt_options, Scale(), command, environment=common.environment())
        running = asyncio.create_task(scaler.run())
        await until(lambda: told.exists() and told.read_text() == common.amqp, "the variable")
        running.cancel()
        await asyncio.wait([running])

    run(scenario())
