"""MQTT 3.1.1 clients that connect under names of their own and are closed after each test."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.v3.support import Broker, BrokerWith, Join, Open
from tidegate.mqtt import Connack
from tidegate.testing.raw import RawClient


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    """A topic name of two levels that no other test uses."""
    return f"{unique('v3')}/topic"


@pytest.fixture
def open_connection(dial: Callable[..., RawClient]) -> Open:
    def open_v3(*, to: Broker | None = None) -> RawClient:
        return dial(4, to=to)

    return open_v3


@pytest.fixture
def join(open_connection: Open, unique: Callable[[str], str]) -> Join:
    def connect(
        name: str = "client", *, to: Broker | None = None, session_present: bool = False, **fields: Any
    ) -> RawClient:
        client = open_connection(to=to)
        assert client.connect(unique(name), **fields) == Connack(session_present=session_present)
        return client

    return connect


@pytest.fixture
def broker_of() -> Iterator[BrokerWith]:
    """`broker_of(hooks=...)` starts a broker with these arguments of `Broker`, for one test."""
    if os.environ.get("TIDEGATE_TEST_PORT"):
        pytest.skip("another server's listeners and hooks cannot be changed")
    from tidegate.testing import BrokerThread

    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(BrokerThread(**options))
