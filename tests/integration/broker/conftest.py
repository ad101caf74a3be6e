"""Real brokers with settings of a test's own, and raw clients; all are ended with the test."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from typing import Any, Protocol

import pytest

from tests.dialing import Dial, Until, dial, until
from tidegate.broker.settings import Features, Limits
from tidegate.testing import BrokerThread

__all__ = ["Dial", "StartBroker", "Until", "dial", "start_broker", "until"]


class StartBroker(Protocol):
    """Arguments are fields of `Limits` and `Features`, or of `Broker` itself."""

    def __call__(self, **settings: Any) -> BrokerThread: ...


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
