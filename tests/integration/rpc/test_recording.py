"""Telemetry from all parts of a backbone to rows."""

import asyncio
from collections.abc import Iterable
from typing import Any

from tests.integration.rpc.support import GATEWAY, kind_for, label, run, until, whole
from tidegate.client import Client
from tidegate.rpc import Call, Options, RouteManager
from tidegate.rpc.recording import Announcer, Collector

MOMENTS = ("t_worker", "t_fwd", "t_mqtt", "t_gw", "t_bck", "t_reply")


class Rows:
    """A sink in memory."""

    def __init__(self) -> None:
        self.of: dict[str, list[dict[str, Any]]] = {"rpc": [], "beacon": []}

    def record(self, table: str, rows: Iterable[dict[str, Any]]) -> bool:
        self.of[table] += rows
        return True


def test_every_call_becomes_one_row_with_every_hop(options: Options) -> None:
    async def scenario() -> None:
        rows = Rows()
        async with (
            Collector(options, rows, every=0.05) as collector,
            Announcer(options) as announcer,
            whole(options, forward=2, back=2, observer=announcer) as parts,
        ):
            calls = [Call(device=label(n), method="image") for n in range(30)]
            results = await parts.backbone.call_many(calls, task="night")
            refused = await parts.backbone.call("nobody", "image", key="nobody-1")
            await until(lambda: len(rows.of["rpc"]) == 31, "rows")
            by_id = {row["request_id"]: row for row in rows.of["rpc"]}
            for result in results:
                row = by_id[result.request_id]
                assert (row["outcome"], row["mac"], row["gw"]) == ("ack", result.device, GATEWAY)
                assert (row["task_id"], row["attempt"]) == ("night", 1)
                assert row["backbone"] == options.backend
                assert None not in [row[name] for name in MOMENTS]
                assert row["ts"] == row["t_reply"] and row["t_worker"] <= row["t_fwd"] <= row["t_reply"]
            assert by_id[refused.request_id]["outcome"] == "refused"
            assert collector.statistics() == {"rpc rows": 31, "open": 0, "abandoned": 0}

    run(scenario())


def test_advertisements_become_rows_and_rubbish_is_counted(mqtt_options: Options) -> None:
    async def scenario() -> None:
        rows = Rows()
        kind = kind_for(mqtt_options)
        async with (
            Collector(mqtt_options, rows, every=0.05) as collector,
            Announcer(mqtt_options) as announcer,
            RouteManager(mqtt_options, [kind], observer=announcer),
            Client(mqtt_options.url) as air,
        ):
            await air.publish(kind.topics.beacon.format(gateway="g"), f'[["{label(1)}", -60]]', qos=1)
            await until(lambda: rows.of["beacon"], "the row")
            [row] = rows.of["beacon"]
            assert (row["mac"], row["gw"], row["rssi"]) == (label(1), "g", -60.0)
            for kind_of, rubbish in (
                ("hops", b"\xff"),
                ("hops", b'[[1, "call"]]'),
                ("hops", b'[["now", "call", "k", "d", "p"]]'),
                ("hops", b'[[1e300, "call", "k", "d", "p"]]'),
                ("beacons", b"[[1]]"),
                ("beacons", b'[[1e300, "d", "g", -60, "g", true]]'),
            ):
                await air.publish(f"{mqtt_options.root}/telemetry/{kind_of}", rubbish, qos=1)
            await until(lambda: collector.counters["malformed"] == 6, "the rubbish")

    run(scenario())


def test_what_nobody_can_be_told_is_dropped_and_counted(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with (
            Announcer(mqtt_options, size=5) as announcer,
            whole(mqtt_options, observer=announcer) as parts,
        ):
            await asyncio.gather(*(parts.backbone.call(label(n), "image") for n in range(10)))
            assert announcer.dropped > 0

    run(scenario())
