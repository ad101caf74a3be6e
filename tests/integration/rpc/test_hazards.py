"""The hazards of spec 4 that need whole parts to be seen, and what strangers may send. Numbers are the spec's."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from tests.integration.rpc.support import GATEWAY, kind_for, label, run, set_routes, until, whole
from tidegate.client import Client
from tidegate.rpc import (
    SHELF_LABEL,
    SILENT_LABEL,
    Backbone,
    BackRouter,
    Behaviour,
    Call,
    ForwardRouter,
    Keeper,
    Options,
    Outcome,
    Reason,
    Retry,
)
from tidegate.rpc.back import shared_filter
from tidegate.rpc.backends import make_queue, make_store
from tidegate.rpc.baseline import HttpCaller, HttpRouter
from tidegate.rpc.correlation import Signer
from tidegate.rpc.gateway import Emulator
from tidegate.rpc.messages import Request, encode_requests
from tidegate.rpc.protocols import Entry


async def keep(stack: AsyncExitStack, options: Options) -> None:
    """A keeper, if the backend needs one."""
    if options.backend == "mqtt":
        keeper = Keeper(options)
        await keeper.open()
        stack.push_async_callback(keeper.close)


def test_1_two_callers_of_one_device_each_get_their_own_answer(options: Options) -> None:
    async def scenario() -> None:
        behaviour = Behaviour(latency=0.05, jitter=0.9)
        async with (
            whole(options, behaviour=behaviour, forward=2, back=2) as parts,
            Backbone(parts.options, [parts.kind]) as other,
        ):
            device = label(1)

            async def ask(caller: Backbone, count: int) -> list[Outcome]:
                return [(await caller.call(device, "image", deadline=20.0)).outcome for _ in range(count)]

            for outcomes in await asyncio.gather(*(ask(each, 10) for each in (parts.backbone, other) * 3)):
                assert Outcome.TIMEOUT not in outcomes and len(outcomes) == 10
            for caller in (parts.backbone, other):
                statistics = caller.statistics()
                assert [statistics[n] for n in ("late", "unknown", "duplicate", "mismatched")] == [0] * 4

    run(scenario())


def test_1_devices_that_cannot_echo_are_called_one_after_another(options: Options) -> None:
    async def scenario() -> None:
        keeper = Keeper(options)
        if options.backend == "mqtt":
            await keeper.open()
        try:
            behaviour = Behaviour(latency=0.02)
            async with (
                whole(options, base=SILENT_LABEL, behaviour=behaviour, forward=2, back=2) as parts,
                Backbone(parts.options, [parts.kind]) as other,
            ):
                calls = [
                    caller.call(label(n % 2), "image", deadline=20.0)
                    for n in range(5)
                    for caller in (parts.backbone, other)
                ]
                results = await asyncio.gather(*calls)
                assert {each.outcome for each in results} == {Outcome.ACK}
                assert parts.emulator.counters["effects"] == 10
        finally:
            if options.backend == "mqtt":
                await keeper.close()

    run(scenario())


def test_1_a_device_that_cannot_echo_is_told_once_however_slow_it_is(options: Options) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            await keep(stack, options)
            retry = Retry(attempts=20, silence=0.05)
            behaviour = Behaviour(latency=0.4)
            parts = await stack.enter_async_context(
                whole(options, base=SILENT_LABEL, behaviour=behaviour, retry=retry)
            )
            assert (await parts.backbone.call(label(1), "image", deadline=20.0)).is_ok
            assert parts.backbone.counters["sent again"] == 0
            assert parts.emulator.counters["taken"] == 1

    run(scenario())


def test_1_types_that_share_topics_are_told_apart_by_their_devices(options: Options) -> None:
    async def scenario() -> None:
        new = kind_for(options)
        old = replace(kind_for(options, SILENT_LABEL), pattern="old-[0-9]+")
        await set_routes(options, {label(1): "new", "old-1": "old"})
        async with AsyncExitStack() as stack:
            await keep(stack, options)
            for kind, gateway in ((new, "new"), (old, "old")):
                await stack.enter_async_context(Emulator(options, [gateway], kind))
            for types in ((new, old), (old, new)):
                async with (
                    BackRouter(options, types),
                    ForwardRouter(options, types),
                    Backbone(options, types) as backbone,
                ):
                    for device in (label(1), "old-1"):
                        assert (await backbone.call(device, "image", deadline=5.0)).is_ok

    run(scenario())


def test_1_without_its_keeper_a_device_that_cannot_echo_is_refused(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with whole(mqtt_options, base=SILENT_LABEL) as parts:
            result = await parts.backbone.call(label(1), "image", deadline=1.0)
            assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.UNAVAILABLE)

    run(scenario())


@pytest.mark.parametrize("backend", ["rabbitmq+redis"])
def test_2_a_return_address_is_given_once(options: Options) -> None:
    """With the other backend correlations carry it, and the caller's table takes each once (test_correlation)."""

    async def scenario() -> None:
        store = make_store(options, "test")
        await store.open()
        await store.send_off([Entry("esl", "c1", "anna", 5.0)], [Entry("old", "c2", "bert", 5.0)])
        assert await store.take([("esl", "c1"), ("esl", "c2"), ("old", "")]) == [
            ("anna", "c1"),
            None,
            ("bert", "c2"),
        ]
        assert await store.take([("esl", "c1"), ("old", "")]) == [None, None]
        await store.close()

    run(scenario())


def test_3_a_reply_to_a_caller_that_left_disables_nobody(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(latency=0.2)) as parts:
            leaving = Backbone(parts.options, [parts.kind])
            await leaving.open()
            ticket = leaving.submit(label(1), "image")
            await until(lambda: parts.emulator.counters["taken"] == 1, "the request")
            await leaving.close()
            assert (await ticket).reason == Reason.CANCELLED
            await until(lambda: parts.back[0].counters["replies to nobody"] == 1, "the reply to nobody")
            assert (await parts.backbone.call(label(2), "image")).is_ok

    run(scenario())


class SilentStore:
    """A store that is asked and never answers: nothing its router took can be sent, or acknowledged."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def send_off(self, entries: Sequence[Entry], silent: Sequence[Entry]) -> list[str | None]:
        self.is_asked.set()
        return await asyncio.get_running_loop().create_future()


def test_4_a_request_is_acknowledged_after_the_gateways_broker_has_it(options: Options) -> None:
    """A router that is stopped in the midst of its work leaves what it has not sent to another."""

    async def scenario() -> None:
        async with whole(options) as parts:
            store = SilentStore()
            stuck = ForwardRouter(parts.options, [parts.kind], store=store)  # type: ignore[arg-type]
            await stuck.open()
            tickets = []
            while not store.is_asked.is_set():
                tickets.append(parts.backbone.submit(label(len(tickets)), "image", deadline=30.0))
                await asyncio.sleep(0.01)
            await stuck.close(patience=0.0)
            assert {(await ticket).outcome for ticket in tickets} == {Outcome.ACK}

    run(scenario())


def test_6_one_deadline_is_on_the_wire(mqtt_options: Options) -> None:
    async def scenario() -> None:
        kind = kind_for(mqtt_options)
        async with (
            whole(mqtt_options, gateways=("g",), routes={label(1): "spy"}) as parts,
            Client(mqtt_options.url) as spy,
        ):
            await spy.subscribe(kind.topics.action.format(gateway="spy"), qos=1)
            before = time.time()
            ticket = parts.backbone.submit(label(1), "image", deadline=7.0)
            message = await anext(spy.messages)
            [request] = message.json()
            assert before + 6.9 < request["deadline"] < time.time() + 7.0
            assert message.message_expiry_interval in (6, 7)
            assert not message.retain  # 8: a gateway that comes back must not repeat it
            assert message.response_topic == kind.topics.response.format(gateway="spy")
            ticket.cancel()

    run(scenario())


def test_8_a_gateway_that_comes_back_repeats_nothing(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options) as parts:
            assert (await parts.backbone.call(label(1), "image")).is_ok
            name = GATEWAY
            await parts.emulator.close()
            again = Emulator(parts.options, [name], parts.kind)
            async with again:
                assert (await parts.backbone.call(label(2), "image")).is_ok
                assert again.counters["taken"] == 1 and again.counters["retained"] == 0

    run(scenario())


def test_9_the_inbox_is_open_before_the_first_request(options: Options) -> None:
    async def scenario() -> None:
        queue = make_queue(options, "test")
        await queue.open()
        got: list[bytes] = []
        address = await queue.open_inbox("early", got.append)
        assert await queue.reply(address, b"[]", deadline=time.time() + 5.0)
        await until(lambda: got, "the reply")
        assert not await queue.reply("tide.nobody", b"[]", deadline=time.time() + 5.0)
        assert await queue.reply(address, b"[]", deadline=time.time() + 5.0)  # and the channel lives
        await queue.close()

    run(scenario())


def test_11_names_are_those_of_the_thesis_with_a_whole_filter() -> None:
    topics = SHELF_LABEL.topics
    assert shared_filter(topics.response) == "$share/router-bck-group//gw/+/response"
    assert shared_filter(topics.response, "shop") == "$share/router-bck-group-shop//gw/+/response"
    assert topics.action.format(gateway="0123456789ab") == "/gw/0123456789ab/action"
    assert topics.status.format(gateway="+") == "/gw/+/status"


def test_13_groups_have_names_of_their_own(mqtt_options: Options) -> None:
    """Two emulators' gateways do not share the back routers' group: every request is taken once, and answered."""

    async def scenario() -> None:
        async with whole(
            mqtt_options, back=3, gateways=("a", "b"), routes={label(n): "ab"[n % 2] for n in range(40)}
        ) as parts:
            results = await parts.backbone.call_many(
                [Call(device=label(n), method="image") for n in range(40)]
            )
            assert {each.outcome for each in results} == {Outcome.ACK}
            assert parts.emulator.counters["taken"] == 40

    run(scenario())


# What strangers may send.


def test_rubbish_on_the_request_queue_is_counted_and_stops_nobody(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options) as parts:
            queue = make_queue(parts.options, "stranger")
            await queue.open()
            for rubbish in (b"\xff", b"{}", b"[[1]]", b"[" * 9000):
                await queue.put("routing.normal", rubbish, deadline=time.time() + 60.0)
            await until(lambda: parts.forward[0].counters["malformed"] == 4, "the rubbish")
            assert (await parts.backbone.call(label(1), "image")).is_ok
            assert await queue.dead("routing") == []
            await queue.close()

    run(scenario())


def forged(**parts: object) -> bytes:
    """A bundle of one request, some of it as a stranger would have it."""
    row = {
        "correlation": "stranger.1.t",
        "key": "k",
        "device": label(1),
        "type": "shelf-label",
        "method": "image",
        "fields": {},
        "token": 1,
        "deadline": time.time() + 60.0,
        "sent": time.time(),
        "reply_to": "stranger",
        "attempt": 1,
    }
    return json.dumps([list((row | parts).values())]).encode()


@pytest.mark.parametrize(
    "part",
    [
        {"deadline": float("inf")},
        {"deadline": float("nan")},
        {"deadline": 1e11},
        {"sent": float("nan")},
        {"device": "\ud800"},
        {"correlation": "\ud800"},
        {"reply_to": "\ud800"},
        {"reply_to": "a\0b"},
        {"fields": {"price": float("inf")}},
    ],
    ids=repr,
)
def test_a_forged_request_holds_no_router(options: Options, part: dict[str, object]) -> None:
    """One that was never acknowledged would stay in the router's window, and go to the next one after it."""

    async def scenario() -> None:
        async with whole(options, forward=0) as parts:
            router = ForwardRouter(parts.options, [parts.kind], prefetch=2)
            async with router:
                queue = make_queue(parts.options, "stranger")
                await queue.open()
                for _ in range(5):
                    await queue.put("routing.normal", forged(**part), deadline=time.time() + 60.0)
                for number in range(3):
                    assert (await parts.backbone.call(label(number), "image", deadline=10.0)).is_ok
                await queue.close()

    run(scenario())


def test_a_request_of_an_unknown_type_is_refused_by_the_router(options: Options) -> None:
    async def scenario() -> None:
        kind = kind_for(options)
        unknown = replace(kind, name="unheard-of")
        async with whole(options) as parts, Backbone(parts.options, [unknown]) as other:
            result = await other.call(label(1), "image")
            assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.UNKNOWN_DEVICE)

    run(scenario())


def test_an_expired_request_is_answered_so_by_the_router(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options) as parts:
            queue = make_queue(parts.options, "stranger")
            await queue.open()
            got: list[bytes] = []
            address = await queue.open_inbox("stranger", got.append)
            request = Request(
                correlation=Signer().sign("stranger", 1),
                key="k",
                device=label(1),
                type=parts.kind.name,
                method="image",
                fields={},
                token=1,
                deadline=time.time() - 1.0,
                sent=time.time(),
                reply_to=address,
            )
            await queue.put("routing.normal", encode_requests([request]), deadline=time.time() + 60.0)
            await until(lambda: got, "the answer")
            assert json.loads(got[0])[0][2] == Outcome.EXPIRED
            await queue.close()

    run(scenario())


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"[1]",
        b"",
        b'{"deviceMac": 5, "ack": true}',
        b'{"deviceMac": "x", "id": "a.b.c", "ack": true}',
        b"[" * 9000,
        b'{"deviceMac": "\\ud800", "id": "a.b.c", "ack": true}',
        b'{"deviceMac": "x", "id": "\\ud800", "ack": true}',
    ],
    ids=["bytes", "number", "nothing", "no device", "forged", "deep", "half a device", "half an id"],
)
def test_answers_that_are_none_stop_no_back_router(options: Options, payload: bytes) -> None:
    async def scenario() -> None:
        async with whole(options) as parts, Client(options.url) as stranger:
            await stranger.publish(parts.kind.topics.response.format(gateway="evil"), payload, qos=1)
            counters = parts.back[0].counters
            await until(lambda: counters["malformed"] + counters["answers to nobody"] == 1, "the answer")
            assert (await parts.backbone.call(label(1), "image")).is_ok
            assert parts.backbone.statistics()["unknown"] == 0

    run(scenario())


def test_a_forged_correlation_never_reaches_a_caller(mqtt_options: Options) -> None:
    async def scenario() -> None:
        signed = replace(mqtt_options, secret=b"only we know")
        async with whole(signed, behaviour=Behaviour(latency=0.2)) as parts, Client(signed.url) as stranger:
            ticket = parts.backbone.submit(label(1), "image")
            await until(lambda: len(parts.backbone._calls) == 1, "the call")
            forged = Signer(b"guessed").sign(parts.backbone.name, 1)
            answer = {"deviceMac": label(1), "ack": False, "id": forged}
            await stranger.publish(
                parts.kind.topics.response.format(gateway="evil"), json.dumps(answer), qos=1
            )
            await until(lambda: parts.back[0].statistics().get("forged") == 1, "the forgery")
            assert (await ticket).is_ok

    run(scenario())


def test_a_second_reply_and_rubbish_in_the_inbox_are_counted(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, back=0) as parts, Client(options.url) as spy:
            response = parts.kind.topics.response.format(gateway=GATEWAY)
            await spy.subscribe(response, qos=1)
            ticket = parts.backbone.submit(label(1), "image", deadline=30.0)
            message = await anext(spy.messages)
            queue = make_queue(parts.options, "stranger")
            await queue.open()
            [answer] = message.json()
            row = [answer["id"], label(1), "ack", "", "", {}]
            for _ in range(2):
                await queue.reply(
                    parts.backbone._address, json.dumps([row]).encode(), deadline=time.time() + 5.0
                )
            await queue.reply(parts.backbone._address, b"rubbish", deadline=time.time() + 5.0)
            assert (await ticket).is_ok
            await until(lambda: parts.backbone.statistics().get("malformed replies") == 1, "the rubbish")
            assert parts.backbone.statistics()["duplicate"] == 1
            await queue.close()

    run(scenario())


# The baseline, for comparison.


def test_the_baseline_answers_while_it_is_alone_and_misroutes_with_two(mqtt_options: Options) -> None:
    async def scenario() -> None:
        # The thesis's topics are fixed, so this test alone may use them.
        async with (
            Emulator(mqtt_options, [GATEWAY]) as emulator,
            HttpRouter(mqtt_options, timeout=1.0) as router,
        ):
            caller = HttpCaller(router.port)
            assert await caller.call({"deviceMac": label(1), "type": 0, "fields": {}}) == 200
            assert await caller.call({"device": 1}) == 400
            async with HttpRouter(mqtt_options, timeout=1.0) as second:
                callers = [HttpCaller(port) for port in (router.port, second.port) for _ in range(10)]
                statuses = await asyncio.gather(
                    *(
                        each.call({"deviceMac": label(n), "type": 0, "fields": {}})
                        for n, each in enumerate(callers)
                    )
                )
                misrouted = router.counters["misrouted"] + second.counters["misrouted"]
                assert statuses.count(504) == misrouted > 0
                assert statuses.count(200) == 20 - misrouted
                for each in callers:
                    await each.close()
            assert emulator.counters["effects"] == 21
            await caller.close()

    run(scenario())


def test_a_broker_that_is_away_is_said_so() -> None:
    async def scenario() -> None:
        options = Options(url="mqtt://127.0.0.1:1", namespace="nowhere")
        for part in (Backbone(options), ForwardRouter(options), BackRouter(options)):
            with pytest.raises(Exception) as caught:
                await part.open()
            assert type(caught.value).__name__ == "Unavailable" and caught.value.hint  # type: ignore[attr-defined]

    run(scenario())


def test_redis_and_rabbitmq_that_are_away_are_said_so(mqtt_options: Options) -> None:
    async def scenario() -> None:
        options = replace(
            mqtt_options, backend="rabbitmq+redis", amqp="amqp://127.0.0.1:1/", redis="redis://127.0.0.1:1/0"
        )
        for part in (make_queue(options, "x"), make_store(options, "x")):
            with pytest.raises(Exception) as caught:
                await part.open()
            assert type(caught.value).__name__ == "Unavailable"
            await part.close()

    run(scenario())


def test_retries_reach_a_router_that_starts_later(mqtt_options: Options) -> None:
    async def scenario() -> None:
        retry = Retry(attempts=50, base=0.05, longest=0.1)
        async with whole(mqtt_options, forward=0, retry=retry) as parts:
            ticket = parts.backbone.submit(label(1), "image", deadline=20.0)
            await until(lambda: parts.backbone.counters["retries"] >= 1, "a retry")
            async with ForwardRouter(parts.options, [parts.kind]):
                result = await ticket
                assert result.is_ok and result.attempts > 1

    run(scenario())


def test_a_gateway_that_comes_back_obeys_all_that_waited_for_it(options: Options) -> None:
    """More than its Receive Maximum, which comes before it has subscribed again."""

    async def scenario() -> None:
        single = replace(SHELF_LABEL, bundle=1)
        async with whole(options, base=single, behaviour=Behaviour(receive_maximum=10)) as parts:
            assert (await parts.backbone.call(label(0), "image")).is_ok
            await parts.emulator.close()
            tickets = [parts.backbone.submit(label(n), "image", deadline=30.0) for n in range(1, 41)]
            await until(lambda: sum(each.counters["sent"] for each in parts.forward) == 41, "the requests")
            async with Emulator(parts.options, [GATEWAY], parts.kind, Behaviour(receive_maximum=10)) as again:
                assert {(await ticket).outcome for ticket in tickets} == {Outcome.ACK}
                assert again.counters["effects"] == 40

    run(scenario())
