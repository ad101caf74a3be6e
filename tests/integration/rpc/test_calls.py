"""Calls end to end, on both backends: every call ends with one named outcome."""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.integration.rpc.support import GATEWAY, label, run, until, whole
from tidegate.rpc import Behaviour, Call, Full, Options, Outcome, Reason, Retry, RpcError
from tidegate.rpc.messages import Request, encode_requests

REQUEST = Request(
    correlation="",
    key="k",
    device=label(1),
    type="shelf-label",
    method="image",
    fields={},
    token=1,
    deadline=0.0,
    sent=0.0,
    reply_to="",
)


def test_a_call_reaches_its_device_and_its_answer_comes_back(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options) as parts:
            result = await parts.backbone.call(label(1), "image", {"price": "1.99"})
            assert (result.outcome, result.gateway, result.attempts) == (Outcome.ACK, GATEWAY, 1)
            assert parts.emulator.counters["effects"] == 1

    run(scenario())


@pytest.mark.parametrize("replicas", [1, 4])
def test_any_number_of_routers_brings_every_reply_to_its_caller(options: Options, replicas: int) -> None:
    async def scenario() -> None:
        async with whole(options, forward=replicas, back=replicas) as parts:
            calls = [
                Call(device=label(n % 150), method="image", fields={"price": str(n)}) for n in range(300)
            ]
            results = await parts.backbone.call_many(calls, deadline=30.0)
            # Two calls to one device at once: the older may be superseded, which is an answer, too.
            assert all(each.is_ok or each.reason == Reason.SUPERSEDED for each in results)
            assert [each.device for each in results] == [call.device for call in calls]
            statistics = parts.backbone.statistics()
            assert (statistics["late"], statistics["unknown"], statistics["mismatched"]) == (0, 0, 0)
            await until(lambda: sum(len(each.windows) for each in parts.forward) == 0, "windows to open")

    run(scenario())


def test_a_nack_is_a_reply_and_ends_the_call_at_once(options: Options) -> None:  # hazard 7
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(nack=1.0)) as parts:
            result = await parts.backbone.call(label(1), "blink", {"color": "red"}, deadline=30.0)
            assert (result.outcome, result.reason) == (Outcome.NACK, Reason.DEVICE)
            assert result.seconds < 15.0

    run(scenario())


def test_no_answer_is_a_timeout_at_the_deadline(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(loss=1.0)) as parts:
            result = await parts.backbone.call(label(1), "image", deadline=0.5)
            assert result.outcome is Outcome.TIMEOUT and result.seconds >= 0.49
            assert parts.backbone.statistics()["open"] == 0

    run(scenario())


def test_a_lost_request_is_sent_again_and_obeyed_once(options: Options) -> None:  # hazard 12
    async def scenario() -> None:
        retry = Retry(attempts=50, silence=0.05)
        async with whole(options, behaviour=Behaviour(loss=0.5), retry=retry) as parts:
            calls = [Call(device=label(n), method="image") for n in range(50)]
            results = await parts.backbone.call_many(calls, deadline=30.0)
            assert {each.outcome for each in results} == {Outcome.ACK}
            assert max(parts.emulator.effects.values()) == 1 and len(parts.emulator.effects) == 50
            assert parts.backbone.counters["sent again"] > 0

    run(scenario())


@pytest.mark.parametrize(
    ("device", "method", "fields", "reason"),
    [
        ("nobody", "image", {}, Reason.UNKNOWN_DEVICE),
        (label(1), "explode", {}, Reason.UNKNOWN_METHOD),
        (label(1), "image", {"price": 5}, Reason.MALFORMED),
        (label(1), "image", {"price": "5" * 99}, Reason.OVERSIZED),
    ],
)
def test_what_was_not_declared_is_refused_and_counted(
    mqtt_options: Options, device: str, method: str, fields: dict[str, object], reason: Reason
) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options) as parts:
            result = await parts.backbone.call(device, method, fields)
            assert (result.outcome, result.reason) == (Outcome.REFUSED, reason)
            assert parts.backbone.statistics()[f"refused: {reason}"] == 1

    run(scenario())


def test_a_device_without_a_route_is_refused_until_it_has_one(options: Options) -> None:  # hazard 10
    async def scenario() -> None:
        async with whole(options, routes={label(1): GATEWAY}, retry=Retry(attempts=2, base=0.01)) as parts:
            refused = await parts.backbone.call(label(2), "image")
            assert (refused.outcome, refused.reason, refused.attempts) == (
                Outcome.REFUSED,
                Reason.NO_ROUTE,
                2,
            )
            assert (await parts.backbone.call(label(1), "image")).is_ok

    run(scenario())


def test_a_deadline_that_is_over_is_expired(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options) as parts:
            assert (await parts.backbone.call(label(1), "image", deadline=0.0)).outcome is Outcome.EXPIRED
            with pytest.raises(RpcError):
                await parts.backbone.call(label(1), "image", deadline=1e9)
            with pytest.raises(RpcError):
                await parts.backbone.call(label(1), "image", priority="urgent")

    run(scenario())


def test_a_stalled_gateway_fills_its_window_and_harms_no_other(options: Options) -> None:
    async def scenario() -> None:
        narrow = replace(options, window=20)
        devices = {label(n): f"gw{n % 2}" for n in range(100)}
        async with whole(narrow, gateways=("gw0", "gw1"), routes=devices, retry=Retry(attempts=1)) as parts:
            parts.emulator.gateways["gw0"].is_stalled = True
            calls = [Call(device=device, method="image") for device in devices]
            results = await parts.backbone.call_many(calls, deadline=2.0)
            slow = [each for each in results if devices[each.device] == "gw0"]
            quick = [each for each in results if devices[each.device] == "gw1"]
            assert all(each.is_ok or each.reason == Reason.BUSY for each in quick)
            assert sum(each.outcome is Outcome.TIMEOUT for each in slow) == 20
            assert sum(each.reason == Reason.BUSY for each in slow) == 30
            # The stalled one goes on: late answers are counted, and reach nobody.
            parts.emulator.gateways["gw0"].go_on()
            await until(
                lambda: (
                    parts.backbone.statistics()["late"]
                    + sum(each.counters["answers to nobody"] for each in parts.back)
                    >= 1
                    or parts.emulator.counters["taken"] >= 70
                ),
                "late answers",
            )
            await until(lambda: parts.forward[0].windows.open("gw1") == 0, "the other window")
            assert (await parts.backbone.call(label(1), "image")).is_ok

    run(scenario())


def test_fire_and_track(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(latency=0.05)) as parts:
            tickets = [parts.backbone.submit(label(n), "image") for n in range(5)]
            assert not tickets[0].is_done
            assert [(await ticket).outcome for ticket in tickets] == [Outcome.ACK] * 5

    run(scenario())


def test_a_cancelled_call_is_forgotten_and_not_sent_any_more(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(latency=0.3)) as parts:
            ticket = parts.backbone.submit(label(1), "image")
            await until(lambda: parts.emulator.counters["taken"] == 1, "the gateway to take it")
            [correlation] = parts.backbone._calls._open
            ticket.cancel()
            result = await ticket
            assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.CANCELLED)
            assert parts.backbone.statistics()["open"] == 0
            # Routers know it, and drop it if it comes to them only now.
            await until(lambda: correlation in parts.forward[0]._cancelled, "the router to know")
            deadline = time.time() + 10.0
            late = replace(
                REQUEST, correlation=correlation, deadline=deadline, reply_to=parts.backbone._address
            )
            await parts.backbone._queue.put("routing.normal", encode_requests([late]), deadline=deadline)
            await until(lambda: parts.forward[0].counters["refused: cancelled"] == 1, "the refusal")
            await until(lambda: parts.backbone.statistics()["late"] >= 1, "the late answer")

    run(scenario())


def test_a_cancelled_call_may_be_repeated(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(latency=0.2)) as parts:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await parts.backbone.call(label(1), "image", key="price-7")
            await until(lambda: len(parts.forward[0]._cancelled) == 1, "the router to know")
            assert (await parts.backbone.call(label(1), "image", key="price-7")).is_ok
            assert parts.emulator.effects == {"price-7": 1}

    run(scenario())


def test_a_device_that_said_no_may_be_asked_again(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(nack=1.0)) as parts:
            refused = await parts.backbone.call(label(1), "image", key="price-7")
            assert (refused.outcome, refused.reason) == (Outcome.NACK, Reason.DEVICE)
            parts.emulator.gateways[GATEWAY].behaviour = Behaviour()
            for _ in range(2):
                assert (await parts.backbone.call(label(1), "image", key="price-7")).is_ok
            assert parts.emulator.effects == {"price-7": 1} and parts.emulator.counters["repeated"] == 1

    run(scenario())


def test_a_ticket_that_is_cancelled_at_once_says_so(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options) as parts:
            ticket = parts.backbone.submit(label(1), "image")
            ticket.cancel()
            result = await ticket
            assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.CANCELLED)
            assert (result.device, result.request_id) == (label(1), ticket.key)

    run(scenario())


def test_who_awaits_a_ticket_can_be_cancelled(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options, behaviour=Behaviour(latency=0.2)) as parts:
            ticket = parts.backbone.submit(label(1), "image")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await ticket
            assert (await ticket).is_ok

    run(scenario())


def test_tickets_of_one_turn_are_bounded(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options, max_open=2) as parts:
            tickets = [parts.backbone.submit(label(n), "image") for n in range(2)]
            with pytest.raises(Full):
                parts.backbone.submit(label(3), "image")
            assert [(await ticket).is_ok for ticket in tickets] == [True, True]
            assert (await parts.backbone.submit(label(3), "image")).is_ok

    run(scenario())


def test_large_requests_and_answers_travel_in_several_messages(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, retry=Retry(attempts=1)) as parts:
            fields = {f"field{n}": "x" * 1000 for n in range(60)}
            calls = [Call(device=label(n), method="image", fields=fields) for n in range(64)]
            results = await parts.backbone.call_many(calls, deadline=30.0)
            assert {each.outcome for each in results} == {Outcome.ACK}

    run(scenario())


def test_a_key_of_half_a_character_harms_no_other_call(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options) as parts:
            calls = [Call(device=label(n), method="image", key=key) for n, key in enumerate(("\ud800", "b"))]
            bad, good = await parts.backbone.call_many(calls)
            assert (bad.outcome, bad.reason) == (Outcome.REFUSED, Reason.MALFORMED)
            assert good.is_ok

    run(scenario())


def test_open_calls_are_bounded(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options, behaviour=Behaviour(latency=0.1), max_open=2) as parts:
            tickets = [parts.backbone.submit(label(n), "image") for n in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Full):
                parts.backbone.submit(label(3), "image")
            assert (await parts.backbone.call(label(4), "image", deadline=10.0)).is_ok  # waits for a place
            assert [(await ticket).is_ok for ticket in tickets] == [True, True]

    run(scenario())


def test_a_high_priority_is_served_first(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options) as parts:
            for priority in ("low", "normal", "high"):
                assert (await parts.backbone.call(label(1), "image", priority=priority)).is_ok

    run(scenario())


def test_an_older_price_that_arrives_later_is_superseded(options: Options) -> None:  # spec 4, e9
    async def scenario() -> None:
        async with whole(options) as parts:
            newer = await parts.backbone.call(label(1), "image", {"price": "2"}, token=2, key="b")
            older = await parts.backbone.call(label(1), "image", {"price": "1"}, token=1, key="a")
            again = await parts.backbone.call(label(1), "image", {"price": "2"}, token=2, key="b")
            assert newer.is_ok and again.is_ok
            assert (older.outcome, older.reason) == (Outcome.NACK, Reason.SUPERSEDED)
            assert parts.emulator.effects == {"b": 1}

    run(scenario())


def test_no_router_means_refused_not_stuck(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options, forward=0, retry=Retry(attempts=2, base=0.01)) as parts:
            result = await parts.backbone.call(label(1), "image")
            assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.UNAVAILABLE)

    run(scenario())
