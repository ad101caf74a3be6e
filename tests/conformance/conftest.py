"""A real broker, and raw clients that are closed after each test.

`TIDEGATE_TEST_PORT` names the port of another server on this machine to test instead; tests that need a
broker with settings of their own are then skipped.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any, Protocol

import pytest

from tidegate.broker.settings import Features, Limits
from tidegate.testing.raw import RawClient


class Broker(Protocol):
    """Where a broker listens."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class BrokerWith(Protocol):
    """Starts a broker; arguments are fields of `Limits` and `Features`, or `hooks` and `listeners`."""

    def __call__(self, **settings: Any) -> Broker: ...


class Dial(Protocol):
    """Opens a connection, by default to the shared broker with MQTT 5; it is closed after the test."""

    def __call__(self, version: int = 5, *, to: Broker | None = None) -> RawClient: ...


@dataclass(frozen=True, kw_only=True)
class OtherServer:
    port: int
    host: str = "127.0.0.1"


def _other_server() -> OtherServer | None:
    port = os.environ.get("TIDEGATE_TEST_PORT")
    return OtherServer(port=int(port)) if port else None


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker with default settings for all tests of this process."""
    other = _other_server()
    if other is not None:
        yield other
        return
    from tidegate.testing import BrokerThread

    with BrokerThread() as running:
        yield running


@pytest.fixture
def broker_with() -> Iterator[BrokerWith]:
    """`broker_with(maximum_qos=1, receive_maximum=2)` starts a broker that lives as long as the test."""
    if _other_server() is not None:
        pytest.skip("another server's settings cannot be changed")
    from tidegate.testing import BrokerThread

    names_of_limits = {field.name for field in fields(Limits)}
    with ExitStack() as stack:

        def start(**settings: Any) -> Broker:
            options = {name: settings.pop(name) for name in ("hooks", "listeners") if name in settings}
            limits = {name: settings.pop(name) for name in names_of_limits & settings.keys()}
            return stack.enter_context(
                BrokerThread(limits=Limits(**limits), features=Features(**settings), **options)
            )

        yield start


@pytest.fixture
def dial(broker: Broker) -> Iterator[Dial]:
    with ExitStack() as stack:

        def open_connection(version: int = 5, *, to: Broker | None = None) -> RawClient:
            server = to or broker
            return stack.enter_context(RawClient(server.port, version, host=server.host))

        yield open_connection


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Adds this test's own suffix to a name, so that tests can share a broker."""
    suffix = uuid.uuid4().hex[:12]
    return lambda name: f"{name}-{suffix}"
