from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.integration.net.peers import LOOPS, run_on


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine to its end; every test that takes it runs once on each event loop."""
    return lambda main: run_on(request.param, main)
