"""Raw clients of a server on a thread, and waiting for it; the `conftest.py` of a room takes these fixtures in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tidegate.testing.raw import RawClient
from tidegate.testing.thread import LoopThread


class Dial(Protocol):
    """Opens a TCP connection to a server of the test; nothing is sent yet."""

    def __call__(self, server: LoopThread, version: int = 5, *, port: int = 0) -> RawClient: ...


class Until(Protocol):
    """Waits for a condition, with a deadline."""

    def __call__(self, condition: Callable[[], bool], seconds: float = 5.0) -> None: ...


@pytest.fixture
def dial() -> Iterator[Dial]:
    with ExitStack() as stack:

        def open_connection(server: LoopThread, version: int = 5, *, port: int = 0) -> RawClient:
            return stack.enter_context(RawClient(port or server.port, version, host=server.host))

        yield open_connection


@pytest.fixture
def until() -> Until:
    def wait(condition: Callable[[], bool], seconds: float = 5.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.01)

    return wait
