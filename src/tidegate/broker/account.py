"""What one user's clients make the node keep, so that none can take all there is.

A session is one of its account's from the moment it is known whose it is; what it keeps goes with it. A retained
message counts for the account of its author, also when no session of it is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.broker.session import Session


class Account:
    """Of one user, or of all clients without user name.

    `kept_bytes` is all of it: sessions, queues, retained. `work` is what its clients caused, in units.
    """

    __slots__ = ("kept_bytes", "retained", "sessions", "user", "work")

    def __init__(self, user: str | None) -> None:
        self.user = user
        self.sessions = 0
        self.retained = 0
        self.kept_bytes = 0
        self.work = 0


class AccountTable:
    """Those that have something here. `most_bytes` is the bound of each."""

    __slots__ = ("_accounts", "most_bytes", "nobody")

    def __init__(self) -> None:
        self._accounts: dict[str | None, Account] = {}
        self.most_bytes = inf
        self.nobody = Account(None)  # of sessions of which it is not known yet whose they are

    def __iter__(self) -> Iterator[Account]:
        return iter(list(self._accounts.values()))

    def find(self, user: str | None) -> Account:
        """Its account; one that is not kept if it has nothing here."""
        return self._accounts.get(user) or Account(user)

    def is_full(self, account: Account) -> bool:
        return account.kept_bytes >= self.most_bytes

    def join(self, session: Session, user: str | None) -> Account:
        """The session belongs to this user from now on, with all it keeps."""
        self.leave(session)
        account = self._open(user)
        account.sessions += 1
        size = session.kept_bytes + session.queued_bytes
        self.nobody.kept_bytes -= size
        account.kept_bytes += size
        return account

    def leave(self, session: Session) -> None:
        """It is over, or somebody else's."""
        account = session.account
        if account is self.nobody:
            return
        size = session.kept_bytes + session.queued_bytes
        account.sessions -= 1
        account.kept_bytes -= size
        self.nobody.kept_bytes += size
        self._close(account)

    def retain(self, user: str | None, count: int, size: int) -> None:
        """It left so many retained messages and bytes more, or less."""
        account = self._open(user)
        account.retained += count
        account.kept_bytes += size
        self._close(account)

    def _open(self, user: str | None) -> Account:
        account = self._accounts.get(user)
        if account is None:
            account = self._accounts[user] = Account(user)
        return account

    def _close(self, account: Account) -> None:
        if not account.sessions and not account.retained:
            del self._accounts[account.user]
