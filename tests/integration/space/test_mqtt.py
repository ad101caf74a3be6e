"""A space over MQTT 5: requests, errors for one client alone, watches that miss nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidegate.client import Client, Message, NoResponder, OperationTimeout
from tidegate.flow.timeout import FixedTimeout, parse_announcement
from tidegate.mqtt.properties import Property
from tidegate.space import Fault, SpaceError, SpaceLimits
from tidegate.space.durable import DurableSpace
from tidegate.space.knowledge import Space
from tidegate.space.mqtt_front import MqttFront
from tidegate.space.requests import Operation, Request, Response
from tidegate.space.rights import Access, SpaceRights, digest_of
from tidegate.space.service import SpaceService

from .conftest import Rig

RunRig = Callable[..., None]
ALL = "SELECT ?s ?o WHERE { ?s <urn:p> ?o }"


async def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def test_insert_query_update_remove(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        assert await home.insert("<urn:a> <urn:p> 1, 2 .") == 1
        answer = await home.query(ALL)
        assert (answer.variables, len(answer.rows), answer.version) == (["s", "o"], 2, 1)
        assert (
            await home.update("DELETE { ?s <urn:p> 1 } INSERT { ?s <urn:p> 9 } WHERE { ?s <urn:p> 1 }") == 2
        )
        assert (await home.query("ASK { <urn:a> <urn:p> 9 }")).truth is True
        assert await home.remove('{"@id": "urn:a", "urn:p": 9}', "application/ld+json") == 3
        assert await home.remove("<urn:a> <urn:p> 9 .") == 3  # nothing changed
        [triple] = await home.construct("CONSTRUCT WHERE { ?s ?p ?o }")
        assert str(triple) == '<urn:a> <urn:p> "2"^^<http://www.w3.org/2001/XMLSchema#integer>'
        lab = await rig.space("lab")
        assert (await lab.query(ALL)).rows == []

    run_rig(body)


@pytest.mark.parametrize(
    ("operation", "text", "fault"),
    [
        (Operation.QUERY, "SELECT", Fault.MALFORMED),
        (Operation.QUERY, b"\xff\xfe", Fault.MALFORMED),
        (Operation.QUERY, "SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }", Fault.UNSUPPORTED),
        (Operation.UPDATE, "INSERT DATA { nonsense }", Fault.MALFORMED),
        (Operation.UPDATE, "LOAD <http://127.0.0.1/>", Fault.UNSUPPORTED),
        (Operation.INSERT, "<urn:a> <urn:p>", Fault.MALFORMED),
        (Operation.CHECK, "{}", Fault.MALFORMED),
        (Operation.CHECK, '{"watch": "x", "number": 0}', Fault.UNKNOWN_WATCH),
        (Operation.WATCH, "SELECT * { ?s ?p ?o } LIMIT 1", Fault.UNSUPPORTED),
    ],
)
def test_bad_input_is_told_to_its_sender_and_changes_nothing(
    run_rig: RunRig, operation: Operation, text: str | bytes, fault: Fault
) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.insert("<urn:a> <urn:p> 1 .")
        with pytest.raises(SpaceError) as caught:
            await home.request(operation, text)
        assert caught.value.fault is fault
        assert "\n" not in str(caught.value)
        assert len((await home.query(ALL)).rows) == 1
        assert rig.service.spaces["home"].engine.version == 1

    run_rig(body)


def test_a_space_that_nobody_serves_is_named(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        with pytest.raises(NoResponder, match="nobody serves space 'hom'") as caught:
            await (await rig.space("hom")).query(ALL)
        assert "tidegate space serve --space hom" in caught.value.hint

    run_rig(body)


def test_rights_are_per_space(run_rig: RunRig) -> None:
    everybody = frozenset({"*"})
    rights = SpaceRights(is_open=False, spaces={"home": {Access.READ: everybody}})

    async def body(rig: Rig) -> None:
        home = await rig.space()
        assert (await home.query(ALL)).rows == []
        for refused in (home.insert("<urn:a> <urn:p> 1 ."), (await rig.space("lab")).query(ALL)):
            with pytest.raises(SpaceError) as caught:
                await refused
            assert caught.value.fault is Fault.FORBIDDEN

    run_rig(body, rights=rights)


ENDLESS = "SELECT (COUNT(*) AS ?n) { " + " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(9)) + " }"
HUGE = "SELECT * { " + " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(4)) + " }"


def test_an_endless_query_ends_and_others_are_served_meanwhile(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home, other = await rig.space(), await rig.space()
        await home.insert("\n".join(f"<urn:s{i}> <urn:p> {i} ." for i in range(300)))
        endless = asyncio.create_task(home.query(ENDLESS, timeout=30.0))
        served = 0
        while not endless.done():
            await other.query(f"{ALL} LIMIT {served + 1}")
            served += 1
        with pytest.raises(SpaceError) as caught:
            await endless
        assert caught.value.fault is Fault.TIMEOUT
        assert served >= 3
        with pytest.raises(SpaceError) as caught:
            await home.query(HUGE)
        assert caught.value.fault in (Fault.TOO_LARGE, Fault.TIMEOUT)
        with pytest.raises(SpaceError) as caught:
            await home.update(f"INSERT {{ <urn:n> <urn:n> ?n }} WHERE {{ {{ {ENDLESS} }} }}")
        assert caught.value.fault is Fault.TIMEOUT
        with pytest.raises(SpaceError) as caught:
            async with home.watch(ENDLESS):
                pass
        assert caught.value.fault is Fault.TIMEOUT
        assert rig.service.spaces["home"].engine.version == 1

    run_rig(body, limits=SpaceLimits(query_time=0.5, answer_bytes=1_000_000))


def test_clearing_and_filling_a_large_space_holds_up_nobody(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home, lab = await rig.space(), await rig.space("lab")
        engine = rig.service.spaces["home"].engine
        data = "".join(f"<urn:s{number}> <urn:p> <urn:o> .\n" for number in range(50_000))
        engine.store.bulk_load(data.encode())
        half = data[:900_000].rpartition("\n")[0]  # as much as a packet takes
        changes = (lambda: home.update("CLEAR ALL"), lambda: home.update(f"INSERT DATA {{ {half} }}"))
        for change in changes:
            changing = asyncio.create_task(change())
            served = 0
            while not changing.done():
                served += 1
                await lab.update(f"INSERT DATA {{ <urn:n{served}> <urn:p> {served} }}")
            await changing
            assert served >= 5
        assert len(engine.store) == half.count("\n") + 1

    run_rig(body)


def test_the_rows_of_a_large_watch_hold_up_nobody(run_rig: RunRig, tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        home, lab = rig.service.spaces["home"], await rig.space("lab")
        data = "".join(f"<urn:s{number}> <urn:p> <urn:o> .\n" for number in range(30_000))
        home.engine.store.bulk_load(data.encode())

        async def served_during(operation: Operation, text: str, room: int | None) -> tuple[int, Response]:
            request = Request(space="home", operation=operation, body=text.encode(), room=room)
            task = asyncio.create_task(rig.service.handle(request))
            served = 0
            while not task.done():
                served += 1
                await lab.update(f"INSERT DATA {{ <urn:n> <urn:p> {served} }}")
            return served, await task

        served, refused = await served_during(Operation.WATCH, ALL, 1_000_000)
        assert served >= 5
        assert refused.error is not None
        assert refused.error.fault is Fault.TOO_LARGE
        assert (home.engine.standing, (tmp_path / "home" / "journal-0.log").stat().st_size) == ({}, 0)
        served, answer = await served_during(Operation.WATCH, ALL, None)
        assert served >= 5
        fields = json.loads(answer.body)
        assert len(fields["rows"]) == 30_000
        old = json.dumps({"watch": fields["watch"], "number": -1})
        served, answer = await served_during(Operation.CHECK, old, None)
        assert served >= 5
        assert json.loads(answer.body)["rows"] == fields["rows"]
        for operation, text in ((Operation.WATCH, ALL), (Operation.CHECK, old)):
            _, refused = await served_during(operation, text, 1_000_000)
            assert refused.error is not None
            assert refused.error.fault is Fault.TOO_LARGE
        assert list(home.engine.standing) == [fields["watch"]]

    run_rig(body, data=tmp_path)


CROSS = "SELECT (COUNT(*) AS ?n) { " + " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(4)) + " }"
GROUPED = "SELECT ?o (COUNT(*) AS ?n) { ?s <urn:p> ?o } GROUP BY ?o"


def test_a_watch_that_cannot_follow_an_update_ends_and_nobody_waits_for_it(
    run_rig: RunRig, tmp_path: Path
) -> None:
    async def body(rig: Rig) -> None:
        home, other = await rig.space(), await rig.space()
        await home.insert("\n".join(f"<urn:s{i}> <urn:p> {i} ." for i in range(8)))
        async with other.watch(CROSS) as watch, other.watch(GROUPED) as grouped:
            many = "\n".join(f"<urn:s{i}> <urn:p> {i} ." for i in range(2000))
            inserted = asyncio.create_task(home.insert(many))
            served = 0
            while not inserted.done():
                await other.query(f"{ALL} LIMIT {served + 1}")
                served += 1
            assert await inserted == 2
            with pytest.raises(SpaceError):
                await anext(watch)
            assert len((await anext(grouped)).added) == 1992
            assert [each.text for each in rig.service.spaces["home"].engine.standing.values()] == [GROUPED]

    run_rig(body, data=tmp_path)
    again = DurableSpace("home", SpaceLimits(), tmp_path / "home")
    assert [each.text for each in again.engine.standing.values()] == [GROUPED]
    asyncio.run(again.close())


def test_identical_queries_are_answered_once(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.insert("<urn:a> <urn:p> 1 .")
        answers = await asyncio.gather(*(home.query(ALL) for _ in range(50)))
        assert {len(answer.rows) for answer in answers} == {1}
        assert rig.service.shared == 49
        await home.insert("<urn:a> <urn:p> 2 .")
        assert len((await home.query(ALL)).rows) == 2

    run_rig(body)


def test_more_than_can_wait_is_refused_with_a_time_to_come_back(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.insert("\n".join(f"<urn:s{i}> <urn:p> {i} ." for i in range(300)))
        asked = [home.query(f"SELECT * {{ ?s ?p {i} }}") for i in range(40)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, SpaceError)]
        assert len(answers) - len(refused) >= 5
        assert refused
        assert all(each.fault is Fault.BUSY and each.retry_after > 0.0 for each in refused)
        assert rig.service.lanes[Operation.QUERY].refused == len(refused)

    run_rig(body, query_workers=1, queue=4)


def test_every_answer_announces_the_load(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        reply = await home.request(Operation.QUERY, ALL)
        assert reply.load.processing > 0.0
        assert reply.load.capacity > 0.0
        async with home.watch(ALL) as watch:
            await wait_until(lambda: watch.checks > 0)
            body = json.dumps({"watch": watch.id, "number": 0})
            reply = await home.request(Operation.CHECK, body)
            assert reply.load.watchers == 1.0
            assert 0.0 < reply.load.rate < reply.load.capacity

    run_rig(body)


def test_an_answer_never_becomes_a_request(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.client.publish(
            "tide/space/home/update",
            "INSERT DATA { <urn:a> <urn:p> 1 }",
            qos=1,
            response_topic="tide/space/home/changes/x",
        )
        with pytest.raises(OperationTimeout):
            await home.client.request("tide/space/home/frobnicate", b"", timeout=0.3, qos=0)
        assert (await home.query(ALL)).version == 0

    run_rig(body)


def test_a_response_topic_that_is_none_ends_nothing(run_rig: RunRig, tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        for operation, text in (("query", ALL), ("update", "INSERT DATA { <urn:a> <urn:p> 1 }")):
            await home.client.publish(f"tide/space/home/{operation}", text, qos=1, response_topic="a/" * 200)
        assert (await home.query(ALL)).version == 0  # it cannot be answered, so it is not served
        assert await home.insert("<urn:a> <urn:p> 2 .") == 1

    run_rig(body, data=tmp_path)


def test_answers_go_only_where_they_may(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        client = (await rig.space()).client
        own = await rig.stack.enter_async_context(Client(f"mqtt://127.0.0.1:{rig.port}"))
        front = MqttFront(rig.service, own, prefix="strict", reply=("replies/+/me", "other"))
        await front.start()
        task = asyncio.create_task(front.run())
        async with client.subscribed("replies/#", "other", "alarms") as answers:
            for topic in ("alarms", "replies/me", "replies/a/me", "other"):
                await client.publish("strict/home/query", ALL, qos=1, response_topic=topic)
            assert [(await anext(answers)).topic for _ in range(2)] == ["replies/a/me", "other"]
        assert front.ignored == 2
        task.cancel()

    run_rig(body)


def test_a_retained_request_is_served_once(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.client.publish(
            "tide/space/home/update",
            "INSERT DATA { <urn:a> <urn:p> 1 }",
            qos=1,
            retain=True,
            response_topic="r",
        )
        await wait_until(lambda: rig.service.spaces["home"].engine.version == 1)
        later = SpaceService(["home"])  # as if it had been started again
        client = await rig.stack.enter_async_context(Client(f"mqtt://127.0.0.1:{rig.port}"))
        front = MqttFront(later, client)
        await front.start()
        task = asyncio.create_task(front.run())
        await home.insert("<urn:a> <urn:p> 2 .")
        await wait_until(lambda: later.answered > 0)
        assert [str(each.object.value) for each in later.spaces["home"].engine.store] == ["2"]
        # A broker that delivers it all the same.
        fields = {Property.RESPONSE_TOPIC: "r"}
        front._begin(Message("tide/space/home/query", ALL.encode(), retain=True, properties=fields))
        assert front.ignored == 1
        task.cancel()
        await later.close()

    run_rig(body)


def test_who_may_not_read_over_mqtt_gets_no_notifications_either(run_rig: RunRig) -> None:
    rights = SpaceRights(
        is_open=False,
        tokens={"anna": digest_of("secret")},
        spaces={
            "home": {Access.READ: frozenset({"anna"}), Access.WRITE: frozenset({"mqtt"})},
            "lab": {Access.READ: frozenset({"mqtt"}), Access.WRITE: frozenset({"mqtt"})},
        },
    )

    async def body(rig: Rig) -> None:
        home, lab = await rig.space(), await rig.space("lab")
        for space, who in (("home", "anna"), ("lab", "mqtt")):
            watch = Request(space=space, operation=Operation.WATCH, body=ALL.encode(), who=who)
            assert (await rig.service.handle(watch)).error is None
        async with home.client.subscribed("tide/space/+/changes/#") as notifications:
            for space in (home, lab):
                await space.insert("<urn:a> <urn:p> 1 .")
            assert (await anext(notifications)).topic.startswith("tide/space/lab/")
        assert rig.service.notified == 2

    run_rig(body, rights=rights)


def test_answers_that_no_packet_can_carry_are_refused(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        for number in range(5):
            await home.insert(f'<urn:a> <urn:p> "{number}{"x" * 300_000}" .')
        for operation in (Operation.QUERY, Operation.WATCH):
            with pytest.raises(SpaceError) as caught:
                await home.request(operation, ALL)
            assert caught.value.fault is Fault.TOO_LARGE
            assert "HTTP" in caught.value.hint
        assert rig.service.spaces["home"].engine.standing == {}

    run_rig(body)


def test_more_was_missed_than_one_packet_can_carry(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home, other = await rig.space(), await rig.space()
        rig.service.notify = lambda *_: None
        async with home.watch(ALL, policy=FixedTimeout(0.5)) as watch:
            for number in range(6):
                await other.insert(f'<urn:a> <urn:p> "{number}{"x" * 300_000}" .')
            numbers = [(await anext(watch)).number for _ in range(6)]
            assert numbers == [1, 2, 3, 4, 5, 6]
            assert watch.resets == 0
            await other.update(
                "INSERT { ?s <urn:p> ?new } WHERE { ?s <urn:p> ?o BIND (CONCAT(?o, 'y') AS ?new) }"
            )
            with pytest.raises(SpaceError) as caught:  # neither the change nor the whole answer fits
                await anext(watch)
            assert caught.value.fault is Fault.TOO_LARGE

    run_rig(body)


LONG = "SELECT ?s { ?s ?p ?o FILTER (?o IN (" + "1, " * 130_000 + "1)) }"


def test_long_texts_are_refused_where_everybody_would_wait(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        for operation, text in (
            (Operation.QUERY, LONG),
            (Operation.WATCH, LONG[:70_000]),
            (Operation.UPDATE, f"INSERT {{ ?s <urn:q> 1 }} WHERE {{ {LONG} }}"),
        ):
            with pytest.raises(SpaceError) as caught:
                await home.request(operation, text)
            assert caught.value.fault is Fault.TOO_LARGE
        assert await home.insert("<urn:a> <urn:p> " + "1, " * 130_000 + "1 .") == 1

    run_rig(body, limits=SpaceLimits(query_bytes=300_000))


def test_watchers_see_every_change_in_order(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home, other = await rig.space(), await rig.space()
        async with home.watch(ALL) as watch, other.watch(p="<urn:p>", policy="fixed") as mask:
            for number in range(20):
                await home.insert(f"<urn:a> <urn:p> {number} .")
            await home.update("DELETE WHERE { ?s <urn:p> ?o }")
            changes = [await anext(watch) for _ in range(21)]
            assert [change.number for change in changes] == list(range(1, 22))
            assert [change.version for change in changes] == list(range(1, 22))
            assert len(changes[-1].removed) == 20
            assert watch.rows == Counter()
            assert [(await anext(mask)).number for _ in range(21)][-1] == 21
            assert mask.variables == ["s", "o"]

    run_rig(body)


def test_watches_of_the_same_text_on_one_client_all_hear(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home, other = await rig.space(), await rig.space()
        async with home.watch(ALL, policy="off") as first:
            async with home.watch(ALL, policy="off", qos=1) as second:
                await wait_until(lambda: first.checks > 0 and second.checks > 0)
                await other.insert("<urn:a> <urn:p> 1 .")
                assert [(await anext(watch)).number for watch in (first, second)] == [1, 1]
                assert first.notifications == second.notifications == 1
            await other.insert("<urn:a> <urn:p> 2 .")
            assert (await anext(first)).number == 2
            assert first.notifications == 2
        assert not any("changes" in topic for topic in home.client.subscriptions)

    run_rig(body)


def test_what_notifications_lose_the_checks_find(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        send = rig.service.notify
        lossy, sent = Random(3), 0

        def notify(space: str, watch: str, data: bytes) -> None:
            nonlocal sent
            if lossy.random() < 0.5:
                sent += 1
                send(space, watch, data)

        rig.service.notify = notify
        async with home.watch(ALL, policy=FixedTimeout(0.2)) as watch:
            for number in range(30):
                await home.update(f"INSERT DATA {{ <urn:a> <urn:p> {number} }}")
            numbers = [(await anext(watch)).number for _ in range(30)]
            assert numbers == list(range(1, 31))
            assert watch.lost > 0
            assert watch.lost + sent >= 30
            assert watch.resets == 0
            assert watch.statistics()["checks"] > 0

    run_rig(body)


def test_a_watcher_that_missed_more_than_is_remembered_gets_the_difference(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        rig.service.notify = lambda *_: None
        async with home.watch(ALL, policy=FixedTimeout(1.0)) as watch:
            await wait_until(lambda: watch.checks > 0)
            for number in range(12):
                await home.update(f"INSERT DATA {{ <urn:a> <urn:p> {number} }}")
            seen: Counter[Any] = Counter()
            while sum(seen.values()) < 12:
                change = await anext(watch)
                seen.update(change.added)
                seen.subtract(change.removed)
            assert watch.resets >= 1
            assert watch.rows == +seen
            assert len(watch.rows) == 12

    run_rig(body, limits=SpaceLimits(history=2))


def test_a_watch_that_nobody_wants_ends_and_comes_back_when_asked_for(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        async with home.watch(ALL, policy=FixedTimeout(0.3)) as watch:
            await wait_until(lambda: watch.checks > 0)
            engine = rig.service.spaces["home"].engine
            assert rig.service.end_forgotten() == 0
            engine.end_watch(watch.id)  # as if the lease had been over
            await home.insert("<urn:a> <urn:p> 1 .")
            change = await anext(watch)
            assert change.added
            assert watch.id in engine.standing
            assert watch.resets >= 1
        rig.service.watchers.seen["home", watch.id] = {"x": -1e9}
        assert rig.service.end_forgotten() == 1
        assert engine.standing == {}

    run_rig(body)


def test_numbers_of_another_life_are_not_taken_for_ours(run_rig: RunRig) -> None:
    """The watch ended while nobody looked, and somebody else began it again: its numbers passed ours."""

    async def body(rig: Rig) -> None:
        home, other = await rig.space(), await rig.space()
        engine = rig.service.spaces["home"].engine
        async with home.watch(ALL, policy=FixedTimeout(0.3)) as watch:
            await home.insert("<urn:a> <urn:p> 1 .")
            assert (await anext(watch)).number == 1
            engine.end_watch(watch.id)
            await home.insert("<urn:a> <urn:p> 2 .")
            await other.request(Operation.WATCH, ALL)
            for number in range(3, 6):
                await home.insert(f"<urn:a> <urn:p> {number} .")
            await wait_until(lambda: len(watch.rows) == 5)
            assert watch.resets >= 1
            assert watch.number == engine.standing[watch.id].number

    run_rig(body)


def test_plain_mqtt_is_enough(run_rig: RunRig) -> None:
    """Anybody's client can speak it: text in, JSON out, properties for the rest."""

    async def body(rig: Rig) -> None:
        async with Client(f"mqtt://127.0.0.1:{rig.port}") as client:
            reply = await client.request(
                "tide/space/home/insert", '{"@id": "urn:a", "urn:p": 5}', content_type="application/ld+json"
            )
            assert reply.json() == {"version": 1, "added": 1, "removed": 0}
            reply = await client.request(
                "tide/space/home/query", ALL, user_properties=(("accept", "text/csv"),)
            )
            assert reply.content_type == "text/csv"
            assert reply.text.splitlines() == ["s,o", "urn:a,5"]
            properties = dict(reply.user_properties)
            assert properties["version"] == "1"
            assert parse_announcement(properties["tide-load"]).processing > 0.0
            reply = await client.request("tide/space/home/query", "SELECT")
            assert dict(reply.user_properties)["fault"] == "malformed"

    run_rig(body)


def test_a_watch_needs_a_query_or_a_mask() -> None:
    space = Space(Client("mqtt://127.0.0.1"), "home")
    with pytest.raises(SpaceError):
        space.watch()
    with pytest.raises(SpaceError):
        space.watch(ALL, p="<urn:p>")


def test_updates_of_a_client_are_applied_in_the_order_they_were_sent(run_rig: RunRig) -> None:
    """Those that must be evaluated take another way than those that name their triples."""

    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.query(ALL)
        texts = [
            f"INSERT {{ <urn:a> <urn:p> {number} }} WHERE {{ }}"
            if number % 4 == 0
            else f"INSERT DATA {{ <urn:a> <urn:p> {number} }}"
            for number in range(24)
        ]
        assert await asyncio.gather(*map(home.update, texts)) == list(range(1, 25))

    run_rig(body)


def test_watches_that_begin_amid_updates_miss_nothing(run_rig: RunRig, tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        writer, reader = await rig.space(), await rig.space()

        async def write(lane: int) -> None:
            for number in range(60):
                await writer.update(f"INSERT DATA {{ <urn:{lane}> <urn:p> {number} }}")

        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            writers = [tasks.create_task(write(lane)) for lane in range(4)]
            watches = []
            for number in range(8):
                text = f"SELECT ?s ?o WHERE {{ ?s <urn:p> ?o FILTER (?o >= {number}) }}"
                watch = await stack.enter_async_context(reader.watch(text, policy=FixedTimeout(5.0)))
                watches.append(watch)
            await asyncio.wait(writers)
            for number, watch in enumerate(watches):
                await wait_until(lambda watch=watch, number=number: len(watch.rows) == 4 * (60 - number))
                assert watch.resets == 0

    run_rig(body, data=tmp_path)
