"""Real nodes with accounts, rights and listeners as an attacker meets them; all are ended with the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.dialing import Dial, Until, dial, until
from tidegate.accounts.passwords import hash_password
from tidegate.settings import load_settings
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

__all__ = ["Dial", "StartNode", "Until", "dial", "start_node", "until"]

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


def login(client: RawClient, name: str, client_id: str = "", **options: Any) -> Any:
    """CONNECT as one of the accounts."""
    return client.connect(client_id or name, username=name, password=name.encode(), **options)
