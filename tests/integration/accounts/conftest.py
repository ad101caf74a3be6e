"""A real broker with accounts from files of the test's own; everything is ended with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from tidegate.accounts import Accounts, AccountsSettings
from tidegate.accounts.passwords import hash_password
from tidegate.accounts.scram_keys import derive_keys, format_keys
from tidegate.broker import Listener
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


@dataclass(frozen=True)
class Served:
    """A broker and the accounts it asks."""

    broker: BrokerThread
    accounts: Accounts

    @property
    def port(self) -> int:
        return self.broker.port

    def reload(self) -> None:
        """What a node does on SIGHUP, as far as rights go."""
        self.broker.call(self.accounts.reload)
        self.broker.call(self.broker.broker.rights_changed)


class Serve(Protocol):
    """Arguments are fields of `AccountsSettings`; by default there are ada, bob and a few rights."""

    def __call__(self, *, listeners: list[Listener] | None = None, **settings: Any) -> Served: ...


class Dial(Protocol):
    def __call__(self, served: Served, version: int = 5) -> RawClient: ...


def account(user: str, password: str, *, scram: bool = False) -> str:
    """Lines of a password file; cheap ones, since these tests are about decisions."""
    stored = hash_password(password.encode(), time_cost=1, memory_cost_kib=8, parallelism=1)
    lines = f"{user}:{stored}\n"
    if scram:
        lines += f"{user}:{format_keys(derive_keys(password, b'salt' * 4, 4096))}\n"
    return lines


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "accounts"
    path.touch(mode=0o600)
    path.write_text(account("ada", "secret", scram=True) + account("bob", "other"))
    return path


@pytest.fixture
def serve(password_file: Path) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(*, listeners: list[Listener] | None = None, **settings: Any) -> Served:
            settings.setdefault("password_file", password_file)
            accounts = Accounts(AccountsSettings(**settings))
            stack.callback(accounts.close)
            options: dict[str, Any] = {"hooks": accounts.hooks()}
            if listeners is not None:
                options["listeners"] = listeners
            return Served(stack.enter_context(BrokerThread(**options)), accounts)

        yield start


@pytest.fixture
def dial() -> Iterator[Dial]:
    with ExitStack() as stack:

        def connect(served: Served, version: int = 5) -> RawClient:
            return stack.enter_context(RawClient(served.port, version))

        yield connect


Write = Callable[[str], Path]


@pytest.fixture
def rights_file(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "rights"
        path.write_text(text)
        return path

    return write
