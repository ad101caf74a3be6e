"""Several space brokers at one MQTT broker, and what somebody sees who asks the wrong one or in the wrong way."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from tidegate.client import Client
from tidegate.space import Fault, SpaceError, SpaceLimits
from tidegate.space.mqtt_front import MqttFront
from tidegate.space.requests import Operation
from tidegate.space.service import SpaceService

from .conftest import Rig

RunRig = Callable[..., None]


async def another(rig: Rig, *names: str) -> MqttFront:
    """The front of one more space broker, which is not started."""
    service = SpaceService(list(names))
    rig.stack.push_async_callback(service.close)
    client = await rig.stack.enter_async_context(Client(f"mqtt://127.0.0.1:{rig.port}"))
    return MqttFront(service, client)


def test_brokers_of_different_spaces_do_not_disturb_each_other(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        front = await another(rig, "garden")
        await front.check_free()
        await front.start()
        task = asyncio.create_task(front.run())
        for name in ("home", "garden", "lab"):
            space = await rig.space(name)
            for number in range(1, 11):
                assert await space.insert(f"<urn:{name}> <urn:p> {number} .") == number
        assert (rig.service.answered, rig.service.failed) == (20, {})
        assert front.ignored == 0
        task.cancel()

    run_rig(body)


def test_a_space_that_is_served_already_is_refused(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        front = await another(rig, "garden", "lab")
        with pytest.raises(SpaceError, match="space 'lab' is served by somebody else") as caught:
            await front.check_free()
        assert "stop that one" in caught.value.hint

    run_rig(body)


def test_who_listens_without_answering_does_not_keep_a_space(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        front = await another(rig, "garden")
        listener = await rig.space("garden")
        async with listener.client.subscribed("tide/space/#") as seen:
            await front.check_free()
            assert (await anext(seen)).topic == "tide/space/garden/query"

    run_rig(body)


@pytest.mark.parametrize(
    "mask", [{"p": "urn:is"}, {"s": "<urn:a"}, {"o": "text"}, {"o": '"a" . ?x ?y "b"'}, {"s": "a"}]
)
def test_a_mask_that_has_no_term_is_told_how_to_write_one(run_rig: RunRig, mask: dict[str, str]) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        with pytest.raises(SpaceError, match=f"{next(iter(mask))} of the mask is") as caught:
            async with home.watch(**mask):  # type: ignore[arg-type]
                pass
        assert caught.value.fault is Fault.MALFORMED
        assert '<urn:is>, "text"' in caught.value.hint

    run_rig(body)


@pytest.mark.parametrize(
    "term",
    ["<urn:x>", '"a \\" b"', "'x'@en-GB", '"5"^^<urn:t>', "-1.5e3", "true", "<<( <urn:a> <urn:b> 1 )>>"],
)
def test_every_sort_of_term_is_one_of_a_mask(run_rig: RunRig, term: str) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.update(f"INSERT DATA {{ <urn:a> a {term} }}")
        async with home.watch(p="a", o=term) as watch:
            assert (watch.variables, len(watch.rows)) == (["s"], 1)

    run_rig(body)


def test_an_update_that_finds_too_much_is_to_be_split(run_rig: RunRig) -> None:
    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.insert("<urn:a> <urn:p> 1, 2, 3, 4, 5, 6 .")
        for text in ("", "INSERT DATA { <urn:b> <urn:p> 1 } ; "):
            with pytest.raises(SpaceError) as caught:
                await home.update(text + "INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }")
            assert caught.value.fault is Fault.TOO_LARGE
            assert caught.value.hint.startswith("split it")
        part = "{ SELECT ?s ?o { ?s <urn:p> ?o FILTER NOT EXISTS { ?s <urn:q> ?o } } LIMIT 5 }"
        for count in (5, 1):
            reply = await home.request(Operation.UPDATE, f"INSERT {{ ?s <urn:q> ?o }} WHERE {{ {part} }}")
            assert reply.json()["added"] == count

    run_rig(body, limits=SpaceLimits(answer_rows=5))


def test_requests_that_nobody_can_answer_are_in_the_log(
    run_rig: RunRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tidegate.space.mqtt")

    async def body(rig: Rig) -> None:
        home = await rig.space()
        await home.client.publish("tide/space/home/query", "ASK {}", qos=1)
        await home.query("ASK {}")  # after it
        [record] = [each for each in caplog.records if each.name == "tidegate.space.mqtt"]
        assert (record.topic, record.reason) == ("tide/space/home/query", "no response topic")

    run_rig(body)
