"""Options of the crash suite: how long, and which decisions."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crash suite")
    group.addoption("--kills", type=int, default=5, help="how often the broker is killed under load")
    group.addoption(
        "--between", type=int, default=1_000, help="messages acknowledged between two kills, at least"
    )
    group.addoption("--soak-seed", type=int, default=1, help="repeats the decisions of a run")
    group.addoption(
        "--queued", type=int, default=100_000, help="messages in the store whose restart is timed"
    )
