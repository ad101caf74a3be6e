"""Connected MQTT 5 clients with identifiers of their own."""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from tests.conformance.conftest import Broker, Dial
from tidegate.mqtt import ReasonCode
from tidegate.testing.raw import RawClient


class Join(Protocol):
    """Connects a client under a name made unique for the test; the CONNECT must succeed."""

    def __call__(self, name: str = "client", *, to: Broker | None = None, **fields: Any) -> RawClient: ...


@pytest.fixture
def join(dial: Dial, unique: Callable[[str], str]) -> Join:
    def connect(name: str = "client", *, to: Broker | None = None, **fields: Any) -> RawClient:
        client = dial(5, to=to)
        connack = client.connect(unique(name), **fields)
        assert connack.reason_code == ReasonCode.SUCCESS, connack
        return client

    return connect


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    """A topic no other test uses."""
    return unique("conformance/topic")
