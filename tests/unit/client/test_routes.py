"""Which queue a message goes to."""

import pytest

from tidegate.client.inbox import Inbox
from tidegate.client.message import Message
from tidegate.client.routes import Routes


def inbox() -> Inbox:
    return Inbox(lambda _message: None)


def test_the_queue_made_last_whose_filter_matches_gets_a_topic() -> None:
    routes = Routes(10, lambda _message: None)
    assert routes.inbox_for("a/b") is routes.common
    outer, inner = inbox(), inbox()
    routes.add(["a/#"], outer)
    assert routes.inbox_for("a/b") is outer
    routes.add(["+/b", "$share/g/jobs/+"], inner)
    assert routes.inbox_for("a/b") is inner
    assert routes.inbox_for("a/c") is outer
    assert routes.inbox_for("jobs/1") is inner
    assert routes.inbox_for("x") is routes.common
    routes.remove("+/b")
    assert routes.inbox_for("a/b") is outer
    assert routes.inbox_for("jobs/1") is inner


def test_a_queue_closes_with_its_last_filter() -> None:
    async def drain(queue: Inbox) -> None:
        await queue.get()

    routes = Routes(10, lambda _message: None)
    queue = inbox()
    routes.add(["a", "b"], queue)
    routes.remove("a")
    routes.remove("never there")
    assert queue in list(routes)
    routes.remove("b")
    assert list(routes) == [routes.common]
    with pytest.raises(StopAsyncIteration):
        drain(queue).send(None)


def test_a_filter_that_is_given_to_another_queue_leaves_its_old_one() -> None:
    routes = Routes(10, lambda _message: None)
    old, new = inbox(), inbox()
    routes.add(["a"], old)
    routes.add(["a"], new)
    assert routes.inbox_for("a") is new
    assert list(routes) == [routes.common, new]


def test_the_bound_is_one_for_all_queues() -> None:
    routes = Routes(4, lambda _message: None)
    queue = inbox()
    routes.add(["a"], queue)
    for target in (queue, routes.common, queue):
        target.put_nowait(Message(topic="a", payload=b""))
    assert not routes.is_full
    assert not routes.has_room
    routes.common.put_nowait(Message(topic="a", payload=b""))
    assert routes.is_full
    queue.get_nowait()
    queue.get_nowait()
    assert routes.has_room


def test_many_topics_do_not_fill_the_memory() -> None:
    routes = Routes(4, lambda _message: None)
    routes.add(["a/#"], inbox())
    for index in range(5000):
        routes.inbox_for(f"a/{index}")
    assert len(routes._known) <= 1000
