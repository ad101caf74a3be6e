"""Real brokers with settings of a test's own, and raw clients; all are ended with the test."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from typing import Any, Protocol

import pytest

from tidegate.broker.settings import Features, Limits
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


class StartBroker(Protocol):
    """Arguments are fields of `Limits` and `Features`, or of `Broker` itself."""

    def __call__(self, **settings: Any) -> BrokerThread: ...


class Dial(Protocol):
    """Opens a TCP connection to a broker of the test; nothing is sent yet."""

    def __call__(self, broker: BrokerThread, version: int = 5, *, port: int = 0) -> RawClient: ...


class Until(Protocol):
    """Waits for a condition, with a deadline."""

    def __call__(self, condition: Callable[[], bool], seconds: float = 5.0) -> None: ...


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    limits = {field.name for field in fields(Limits)}
    features = {field.name for field in fields(Features)}
    with ExitStack() as stack:

        def start(**settings: Any) -> BrokerThread:
            settings.setdefault("connection_rate", 0)
            of_limits = {name: settings.pop(name) for name in limits & settings.keys()}
            of_features = {name: settings.pop(name) for name in features & settings.keys()}
            return stack.enter_context(
                BrokerThread(limits=Limits(**of_limits), features=Features(**of_features), **settings)
            )

        yield start


@pytest.fixture
def dial() -> Iterator[Dial]:
    with ExitStack() as stack:

        def open_connection(broker: BrokerThread, version: int = 5, *, port: int = 0) -> RawClient:
            return stack.enter_context(RawClient(port or broker.port, version, host=broker.host))

        yield open_connection


@pytest.fixture
def until() -> Until:
    def wait(condition: Callable[[], bool], seconds: float = 5.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.01)

    return wait
