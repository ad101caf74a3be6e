"""Real nodes with accounts, rights and listeners as an attacker meets them; all are ended with the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest

from tidegate.accounts.passwords import hash_password
from tidegate.settings import load_settings
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

ACCOUNTS = ("owner", "guest", "mallory")
"""Each has its own name as password."""
RIGHTS = """
user owner
topic readwrite #
topic readwrite $tide/#

user guest
topic readwrite public/#

user mallory
topic readwrite public/#
"""


class StartNode(Protocol):
    """Arguments are settings, `limits__max_sessions=10` say. With `rights`, the accounts above and these rights."""

    def __call__(self, rights: str = "", **settings: Any) -> NodeThread: ...


class Dial(Protocol):
    """A connection to a node; nothing is sent yet."""

    def __call__(self, node: NodeThread | int, version: int = 5) -> RawClient: ...


class Until(Protocol):
    """Waits for a condition, with a deadline."""

    def __call__(self, condition: Callable[[], bool], seconds: float = 5.0) -> None: ...


@cache
def _stored(name: str) -> str:
    return hash_password(name.encode(), time_cost=1, memory_cost_kib=8, parallelism=1)


def write_accounts(folder: Path, names: tuple[str, ...] = ACCOUNTS) -> Path:
    path = folder / "accounts"
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}:{_stored(name)}\n" for name in names))
    return path


def write_rights(folder: Path, text: str) -> Path:
    path = folder / "rights"
    path.write_text(text)
    return path


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    with ExitStack() as stack:

        def start(rights: str = "", **settings: Any) -> NodeThread:
            given: dict[str, object] = {"listeners.0.port": 0, "limits.connection_rate": 0.0}
            if rights:
                given["accounts.password_file"] = str(write_accounts(tmp_path))
                given["accounts.rights_file"] = str(write_rights(tmp_path, rights))
            given |= {key.replace("__", "."): value for key, value in settings.items()}
            return stack.enter_context(NodeThread(load_settings(None, (), {}, given)))

        yield start


@pytest.fixture
def dial() -> Iterator[Dial]:
    with ExitStack() as stack:

        def connect(node: NodeThread | int, version: int = 5) -> RawClient:
            port = node if isinstance(node, int) else node.port
            return stack.enter_context(RawClient(port, version))

        yield connect


@pytest.fixture
def until() -> Until:
    def wait(condition: Callable[[], bool], seconds: float = 5.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.01)

    return wait


def login(client: RawClient, name: str, client_id: str = "", **options: Any) -> Any:
    """CONNECT as one of the accounts."""
    return client.connect(client_id or name, username=name, password=name.encode(), **options)
