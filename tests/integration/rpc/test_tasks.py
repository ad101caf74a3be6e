"""Tasks: at least once, retried with a counter, buried with a reason, done once at devices."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.rpc.support import Parts, kind_for, label, run, until, until_length, whole
from tidegate.rpc import (
    Behaviour,
    Call,
    Dispatcher,
    Job,
    Options,
    Outcome,
    Reason,
    Retry,
    RpcError,
    TaskFailed,
    TaskWorker,
)
from tidegate.rpc.messages import UNREADABLE, Task
from tidegate.rpc.protocols import Letter
from tidegate.rpc.rabbit_queue import RabbitQueue
from tidegate.rpc.tasks import HANDLERS
from tidegate.rpc.worker import Handler

QUICK = Retry(attempts=3, base=0.02, longest=0.05)


@asynccontextmanager
async def crew(
    options: Options, handlers: dict[str, Handler], behaviour: Behaviour | None = None, workers: int = 1
) -> AsyncIterator[tuple[Parts, Dispatcher, list[TaskWorker]]]:
    async with whole(options, behaviour=behaviour) as parts:
        kind = kind_for(options)
        made = [
            TaskWorker(parts.options, handlers, [kind], concurrency=10, retry=QUICK) for _ in range(workers)
        ]
        try:
            for worker in made:
                await worker.open()
            async with Dispatcher(parts.options) as dispatcher:
                yield parts, dispatcher, made
        finally:
            for worker in made:
                await worker.close()


def test_tasks_are_done_by_any_worker_and_tell_what_they_returned(options: Options) -> None:
    async def scenario() -> None:
        async with crew(options, dict(HANDLERS), workers=2) as (parts, dispatcher, workers):
            tracked = [
                await dispatcher.submit(
                    "calls",
                    {
                        "calls": [
                            {"device": label(n), "method": "image"},
                            {"device": label(n + 100), "method": "image"},
                        ]
                    },
                )
                for n in range(20)
            ]
            results = [await each for each in tracked]
            assert {each.outcome for each in results} == {Outcome.ACK}
            assert results[0].value == ["ack", "ack"] and results[0].attempts == 1
            assert parts.emulator.counters["effects"] == 40
            assert sum(worker.counters["taken"] for worker in workers) == 20

    run(scenario())


def test_a_failed_task_is_tried_again_then_buried_and_can_be_replayed(options: Options) -> None:  # hazard 5
    attempts: list[int] = []
    is_mended = False

    async def flaky(job: Job) -> str:
        attempts.append(job.task.attempt)
        if not is_mended:
            raise TaskFailed("not yet")
        return "done"

    async def scenario() -> None:
        nonlocal is_mended
        async with crew(options, {"flaky": flaky}) as (_, dispatcher, workers):
            result = await (await dispatcher.submit("flaky", {}, id="task-1"))
            assert (result.outcome, result.reason, result.attempts) == (
                Outcome.NACK,
                "TaskFailed: not yet",
                3,
            )
            assert attempts == [1, 2, 3]
            [dead] = await dispatcher.dead()
            assert (dead.id, dead.kind, dead.attempt, dead.reason) == (
                "task-1",
                "flaky",
                3,
                "TaskFailed: not yet",
            )
            assert len(await dispatcher.dead()) == 1  # looking at it left it there
            is_mended = True
            assert await dispatcher.replay("task-1")
            await until(lambda: workers[0].counters["tasks ack"] == 1, "the replayed task")
            assert await dispatcher.dead() == []
            assert not await dispatcher.replay("task-1")

    run(scenario())


def test_what_no_worker_knows_and_what_is_too_late_is_buried(options: Options) -> None:
    async def scenario() -> None:
        async with crew(options, {}) as (_, dispatcher, _workers):
            unknown = await (await dispatcher.submit("dance", {}))
            assert unknown.outcome is Outcome.NACK and "dance" in unknown.reason
            assert [task.kind for task in await dispatcher.dead()] == ["dance"]
            assert await dispatcher.drop(unknown.id)
            assert await dispatcher.dead() == []
            with pytest.raises(RpcError):
                await dispatcher.submit("dance", {}, priority="urgent")
            with pytest.raises(RpcError):
                await dispatcher.submit("dance", {}, deadline=0.0)

    run(scenario())


def test_all_dead_tasks_are_replayed_or_dropped_together(options: Options) -> None:
    async def scenario() -> None:
        async with crew(options, {}) as (_, dispatcher, workers):
            await dispatcher._queue.put("tasks.normal", b"rubbish", deadline=None)
            for number in range(3):
                await (await dispatcher.submit("dance", {}, id=f"t{number}"))
            await until_length(dispatcher.dead, 4)
            replayed = await dispatcher.replay_all()
            assert sorted(task.id for task in replayed) == ["t0", "t1", "t2"]
            await until(lambda: workers[0].counters["buried"] == 7, "their second death")
            dead = await until_length(dispatcher.dead, 4)
            dropped = await dispatcher.drop_all()
            assert sorted(task.id for task in dropped) == sorted(task.id for task in dead)
            assert await dispatcher.dead() == [] and await dispatcher.replay_all() == []

    run(scenario())


@pytest.mark.parametrize("backend", ["rabbitmq+redis"])
def test_dead_letters_may_be_looked_at_any_number_of_times(options: Options) -> None:
    """A quorum queue would drop them after some."""

    async def scenario() -> None:
        queue = RabbitQueue(options, "test")
        assert queue._arguments("dead.tasks") == {"x-queue-type": "classic"}
        await queue.open()
        await queue.bury("tasks", Letter("a", b"letter"))
        for _ in range(25):
            assert len(await queue.dead("tasks")) == 1
        assert await queue.exhume("tasks", ["a", "b"]) == {"a"}
        await queue.close()

    run(scenario())


def test_a_result_that_is_no_json_is_the_tasks_fault(mqtt_options: Options) -> None:
    async def returns_a_set(job: Job) -> set[int]:
        return {1}

    async def scenario() -> None:
        async with crew(mqtt_options, {"t": returns_a_set}) as (_, dispatcher, _workers):
            result = await (await dispatcher.submit("t", {}))
            assert result.outcome is Outcome.NACK and "TypeError" in result.reason

    run(scenario())


def test_a_replayed_task_that_dies_at_once_is_not_lost(options: Options) -> None:
    async def scenario() -> None:
        async with crew(options, {}) as (_, dispatcher, workers):
            await (await dispatcher.submit("dance", {}, id="t1"))
            for times in (2, 3, 4):
                assert await dispatcher.replay("t1")
                await until(lambda times=times: workers[0].counters["buried"] == times, "its death")  # type: ignore[misc]
                assert [task.id for task in await until_length(dispatcher.dead, 1)] == ["t1"]

    run(scenario())


@pytest.mark.parametrize("name", ["a/b", "#", "\ud800", "\u00e9" * 50_000])
def test_a_task_of_any_name_is_buried_whole(options: Options, name: str) -> None:
    """What strangers put there: no name may be a topic, or make the letter longer than a message may be."""

    async def scenario() -> None:
        async with crew(options, {}) as (_, dispatcher, _workers):
            task = Task(id=name, kind="dance", body={}, created=0.0, deadline=time.time() + 60.0)
            await dispatcher._queue.put("tasks.normal", task.encode(), deadline=task.deadline)
            [dead] = await until_length(dispatcher.dead, 1)
            assert dead.id == name and await dispatcher.drop(name)

    run(scenario())


def test_rubbish_on_the_task_queue_is_buried_and_stops_nobody(options: Options) -> None:
    async def scenario() -> None:
        async with crew(options, dict(HANDLERS)) as (_, dispatcher, workers):
            for rubbish in (b"\xff\x00", b"{}", b"[" * 5000):
                await dispatcher._queue.put("tasks.normal", rubbish, deadline=time.time() + 60.0)
            await until(lambda: workers[0].counters["malformed"] == 3, "the rubbish")
            await until_length(dispatcher.dead, 3)
            body = {"calls": [{"device": label(1), "method": "image"}]}
            assert (await (await dispatcher.submit("calls", body))).is_ok

    run(scenario())


@pytest.mark.parametrize("attempt", [-9999, 1])
def test_a_task_put_off_for_ever_holds_no_worker(options: Options, attempt: int) -> None:
    async def fails(job: Job) -> None:
        raise TaskFailed("always")

    async def scenario() -> None:
        async with crew(options, {"t": fails}) as (_, dispatcher, _workers):
            now = time.time()
            task = Task(id="t1", kind="t", body={}, created=now, deadline=now + 600.0, attempt=attempt)
            task.not_before = now + 500.0
            await dispatcher._queue.put("tasks.normal", task.encode(), deadline=None)
            await until_length(dispatcher.dead, 1)

    run(scenario())


def test_a_task_that_cancels_itself_has_failed(options: Options) -> None:
    async def cancels(job: Job) -> None:
        raise asyncio.CancelledError

    async def scenario() -> None:
        async with crew(options, {"t": cancels}) as (_, dispatcher, workers):
            result = await (await dispatcher.submit("t", {}, deadline=20.0))
            assert result.outcome is Outcome.NACK and "CancelledError" in result.reason
            assert workers[0].counters["buried"] == 1

    run(scenario())


def test_a_result_that_is_too_large_is_the_tasks_fault(mqtt_options: Options) -> None:
    async def returns_much(job: Job) -> str:
        return "x" * 2_000_000

    async def scenario() -> None:
        async with crew(mqtt_options, {"t": returns_much}) as (_, dispatcher, _workers):
            result = await (await dispatcher.submit("t", {}, deadline=20.0))
            assert result.outcome is Outcome.NACK and "2000002 bytes" in result.reason

    run(scenario())


def test_a_long_reason_is_cut(options: Options) -> None:
    async def fails(job: Job) -> None:
        raise TaskFailed("x" * 2_000_000)

    async def scenario() -> None:
        async with crew(options, {"t": fails}) as (_, dispatcher, _workers):
            result = await (await dispatcher.submit("t", {}, deadline=20.0))
            assert (result.attempts, len(result.reason)) == (3, 500)
            assert [len(task.reason) for task in await dispatcher.dead()] == [500]

    run(scenario())


@pytest.mark.parametrize("is_task", [True, False])
def test_a_dead_task_that_is_too_large_to_be_kept_is_kept_in_short(
    mqtt_options: Options, is_task: bool
) -> None:
    async def scenario() -> None:
        async with crew(mqtt_options, {}) as (_, dispatcher, workers):
            now = time.time()
            task = Task(id="t1", kind="dance", body={"x": ""}, created=now, deadline=now + 60.0)
            space = 1024 * 1024 - 50 - len(task.encode())
            task.body["x"] = "x" * space
            body = task.encode() if is_task else b"x" * (1024 * 1024 - 50)
            await dispatcher._queue.put("tasks.normal", body, deadline=None)
            [dead] = await until_length(dispatcher.dead, 1)
            assert dead.kind == UNREADABLE and "too many to be kept" in dead.reason
            assert not is_task or (dead.id, dead.body["kind"]) == ("t1", "dance")
            assert not await dispatcher.replay(dead.id) and await dispatcher.drop(dead.id)
            assert workers[0].counters["buried"] == 1 and await dispatcher.dead() == []

    run(scenario())


def test_a_second_run_of_a_task_does_nothing_twice(options: Options) -> None:  # hazard 12
    runs = 0

    async def dies_once(job: Job) -> int:
        nonlocal runs
        runs += 1
        results = await job.call_many([Call(device=label(n), method="image") for n in range(5)])
        assert all(each.is_ok for each in results)
        if runs == 1:
            raise TaskFailed("after the devices had done it")
        return runs

    async def scenario() -> None:
        async with crew(options, {"price": dies_once}) as (parts, dispatcher, _):
            result = await (await dispatcher.submit("price", {}))
            assert result.is_ok and result.value == 2
            assert parts.emulator.effects.total() == 5 and set(parts.emulator.effects.values()) == {1}

    run(scenario())


def test_a_task_of_a_worker_that_leaves_goes_to_another(options: Options) -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def hangs(job: Job) -> str:
            started.set()
            await asyncio.Event().wait()
            return ""

        async def works(job: Job) -> str:
            return "saved"

        async with whole(options) as parts:
            kind = kind_for(options)
            first = TaskWorker(parts.options, {"t": hangs}, [kind])
            await first.open()
            async with Dispatcher(parts.options) as dispatcher:
                tracked = await dispatcher.submit("t", {})
                await started.wait()
                async with TaskWorker(parts.options, {"t": works}, [kind]):
                    await first.close()
                    assert (await tracked).value == "saved"

    run(scenario())


def test_a_worker_that_leaves_in_mid_call_spoils_nothing_for_another(options: Options) -> None:
    async def scenario() -> None:
        async with whole(options, behaviour=Behaviour(latency=0.3)) as parts:
            kind = kind_for(options)
            first, second = (
                TaskWorker(parts.options, dict(HANDLERS), [kind], concurrency=5, retry=QUICK)
                for _ in range(2)
            )
            await first.open()
            async with Dispatcher(parts.options) as dispatcher:
                calls = [{"device": label(n), "method": "image"} for n in range(5)]
                tracked = await dispatcher.submit("calls", {"calls": calls})
                await until(lambda: parts.emulator.counters["taken"] == 5, "the calls")
                async with second:
                    await first.close()
                    assert (await tracked).is_ok
                    assert second.counters["retried"] == 0
                    assert parts.emulator.effects.total() == 5

    run(scenario())


def test_a_cancelled_task_is_not_begun(options: Options) -> None:
    async def scenario() -> None:
        async with crew(options, dict(HANDLERS)) as (_, dispatcher, workers):
            await dispatcher.cancel("t-1")
            await until(lambda: "t-1" in workers[0]._cancelled, "the worker to know")
            result = await (await dispatcher.submit("calls", {"calls": []}, id="t-1"))
            assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.CANCELLED)

    run(scenario())


def test_the_shipped_task_names_a_body_that_is_wrong(mqtt_options: Options) -> None:
    async def scenario() -> None:
        async with crew(mqtt_options, dict(HANDLERS)) as (_, dispatcher, _workers):
            result = await (await dispatcher.submit("calls", {"calls": [{"device": 5}]}))
            assert result.outcome is Outcome.NACK and "method" in result.reason
            json.dumps(result.value)

    run(scenario())
