"""Routes from the air to the routers: beacons, wills, and a device that moves."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from tests.integration.rpc.support import kind_for, label, run, set_routes, until
from tidegate.client import Client
from tidegate.rpc import Backbone, BackRouter, Emulator, ForwardRouter, Options, RouteManager, RpcError
from tidegate.rpc.radio import Field, strength
from tidegate.rpc.telemetry import Beacon, Hop


class Seen:
    def __init__(self) -> None:
        self.beacons: list[Beacon] = []
        self.hops: list[Hop] = []

    def on_hop(self, hop: Hop) -> None:
        self.hops.append(hop)

    def on_beacon(self, beacon: Beacon) -> None:
        self.beacons.append(beacon)


def test_devices_are_called_through_the_gateway_that_hears_them_best(options: Options) -> None:
    async def scenario() -> None:
        kind = replace(kind_for(options), advertises_every=0.2)
        field = Field(["g0", "g1", "g2"], 60.0, 20.0, noise=0.0, random=Random(5))
        devices = [label(n) for n in range(30)]
        for device in devices:
            field.add(device)
        seen = Seen()
        async with (
            RouteManager(options, [kind], observer=seen) as manager,
            Emulator(options, ["g0", "g1", "g2"], kind, field=field),
            BackRouter(options, [kind]),
            ForwardRouter(options, [kind]),
            Backbone(options, [kind]) as backbone,
        ):
            await until(lambda: all(manager.rule.gateway(device) for device in devices), "all routes")
            for device in devices:
                result = await backbone.call(device, "image")
                best = field.best(device)
                assert result.is_ok and best is not None
                # The first that heard it stays unless another is stronger by the margin of 5 dB.
                behind = strength(field.distance(device, best)) - strength(
                    field.distance(device, result.gateway)
                )
                assert behind < 5.0
            assert len(seen.beacons) >= 30 and seen.beacons[0].is_changed

    run(scenario())


def test_a_will_moves_devices_at_once(mqtt_options: Options) -> None:
    async def scenario() -> None:
        kind = kind_for(mqtt_options)
        async with (
            RouteManager(mqtt_options, [kind]) as manager,
            Client(mqtt_options.url) as air,
        ):
            for gateway, rssi in (("near", -50), ("far", -80)):
                await air.publish(
                    kind.topics.beacon.format(gateway=gateway), f'[["{label(1)}", {rssi}]]', qos=1
                )
            await until(lambda: manager.counters["beacons"] == 2, "beacons")
            assert manager.rule.gateway(label(1)) == "near"
            await air.publish(kind.topics.status.format(gateway="near"), '{"state": "lost"}', qos=1)
            await until(lambda: manager.rule.gateway(label(1)) == "far", "the move")
            for rubbish in (b"\xff", b"5", b"[[1]]", b'{"a": 1}'):
                await air.publish(kind.topics.beacon.format(gateway="near"), rubbish, qos=1)
                await air.publish(kind.topics.status.format(gateway="near"), rubbish, qos=1)
            await until(lambda: manager.counters["malformed"] >= 6, "rubbish")

    run(scenario())


def test_strangers_in_the_air_change_nothing(options: Options) -> None:
    async def scenario() -> None:
        kind = kind_for(options)
        async with RouteManager(options, [kind]) as manager, Client(options.url) as air:
            topic = kind.topics.beacon.format(gateway="g")
            for device, rssi in (
                (r"\ud800", "-50"),
                ("nobody", "-50"),
                (label(1), "NaN"),
                (label(1), "1e999"),
                (label(2), "-50"),
            ):
                await air.publish(topic, f'[["{device}", {rssi}]]', qos=1)
            await air.publish(topic, f'[["{label(1)}", {10**400}]]', qos=1)
            await air.publish(topic, "[" * 9000, qos=1)
            await until(lambda: manager.counters["malformed"] == 2, "rubbish")
            assert (manager.counters["beacons of strangers"], manager.counters["beacons"]) == (4, 1)
            while await manager._store.routes() != {label(2): "g"}:
                await asyncio.sleep(0.05)

    run(scenario())


def test_a_manager_whose_writer_ends_is_closed(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with RouteManager(mqtt_options, [kind_for(mqtt_options)]) as manager:
            waiting = asyncio.create_task(manager.wait_closed())
            assert manager._writer is not None
            manager._writer.cancel()
            async with asyncio.timeout(5.0):
                await waiting

    run(scenario())


def test_a_gateway_that_was_lost_without_a_manager_has_no_devices(options: Options) -> None:
    async def scenario() -> None:
        kind = kind_for(options)
        await set_routes(options, {label(1): "lost", label(2): "there"})
        async with Client(options.url) as air:
            status = kind.topics.status.format(gateway="lost")
            await air.publish(status, '{"state": "lost"}', qos=1, retain=True)
            async with RouteManager(options, [kind]) as manager:
                while await manager._store.routes() != {label(2): "there"}:
                    await asyncio.sleep(0.05)
                await air.publish(kind.topics.beacon.format(gateway="new"), f'[["{label(2)}", -90]]', qos=1)
                await until(lambda: manager.rule.gateway(label(2)) == "new", "what is heard to count more")
            await air.publish(status, b"", qos=1, retain=True)

    run(scenario())


def test_routes_outlive_the_manager(options: Options) -> None:
    async def scenario() -> None:
        kind = kind_for(options)
        async with RouteManager(options, [kind]) as manager, Client(options.url) as air:
            heard = ",".join(f'["{label(n)}", -60]' for n in range(300))
            await air.publish(kind.topics.beacon.format(gateway="g"), f"[{heard}]", qos=1)
            await until(lambda: manager.counters["beacons"] == 300, "beacons")
            while len(await manager._store.routes()) < 300:
                await asyncio.sleep(0.05)
        async with ForwardRouter(options, [kind]) as router:
            assert len(await router._store.routes()) == 300

    run(scenario())


def test_an_unknown_rule_is_refused(mqtt_options: Options) -> None:
    with pytest.raises(RpcError):
        RouteManager(mqtt_options, rule="best")
