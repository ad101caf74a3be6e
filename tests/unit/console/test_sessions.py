"""Sessions: what counts as use, and when one ends."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.accounts.password_edit import set_password
from tidegate.console.sessions import IDLE, Sessions
from tidegate.console.settings import ConsoleSettings


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Sessions]:
    path = tmp_path / "accounts.txt"
    set_password(path, "ada", b"secret")
    sessions = Sessions(ConsoleSettings(password_file=path))
    yield sessions
    sessions.close()


def test_a_page_that_only_stands_open_does_not_keep_its_session(accounts: Sessions) -> None:
    session = asyncio.run(accounts.log_in("ada", "secret", "127.0.0.1"))
    assert session is not None
    session.used = used = time.monotonic() - IDLE + 60.0
    assert accounts.find(session.key, is_use=False) is session
    assert session.used == used
    session.used = time.monotonic() - IDLE - 1.0
    assert accounts.find(session.key, is_use=False) is None
    assert accounts.find(session.key) is None


def test_somebody_who_does_something_stays(accounts: Sessions) -> None:
    session = asyncio.run(accounts.log_in("ada", "secret", "127.0.0.1"))
    assert session is not None
    session.used = used = time.monotonic() - IDLE + 60.0
    assert accounts.find(session.key) is session
    assert session.used > used


def test_without_accounts_a_session_does_not_end() -> None:
    sessions = Sessions(ConsoleSettings())
    session = sessions.open_local()
    session.used = time.monotonic() - 10 * IDLE
    assert sessions.find(session.key, is_use=False) is session
    sessions.close()
