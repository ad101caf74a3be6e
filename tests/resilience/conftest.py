"""Broker processes for one test each."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from bench.soak.broker import BrokerProcess


class StartBroker(Protocol):
    """`start("limits.write_timeout=2", …)`: each argument is a `--set` option."""

    def __call__(self, *settings: str) -> BrokerProcess: ...


@pytest.fixture
def start() -> Iterator[StartBroker]:
    with ExitStack() as stack:

        def start_broker(*settings: str) -> BrokerProcess:
            return stack.enter_context(BrokerProcess(*settings))

        yield start_broker
