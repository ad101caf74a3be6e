"""Pytest fixtures, registered by installing the package.

`tidegate_broker`: a real broker on a free port, one a test. `tidegate_broker_factory`: makes brokers with other
settings; all are stopped when the test ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidegate.testing.thread import BrokerThread


@pytest.fixture
def tidegate_broker_factory() -> Iterator[Callable[..., BrokerThread]]:
    """`tidegate_broker_factory(limits=Limits(...), features=Features(...))` starts a broker and gives it."""
    from tidegate.testing.thread import BrokerThread  # not at start-up: most projects' tests need no broker

    with ExitStack() as stack:

        def start(**options: Any) -> BrokerThread:
            return stack.enter_context(BrokerThread(**options))

        yield start


@pytest.fixture
def tidegate_broker(tidegate_broker_factory: Callable[..., BrokerThread]) -> BrokerThread:
    """A broker with default settings; connect to `tidegate_broker.host` and `tidegate_broker.port`."""
    return tidegate_broker_factory()
