"""What the sessions of one account come to, so that none can take all there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.broker.session import Session


class Account:
    """Of one user, or of all clients without user name."""

    __slots__ = ("sessions", "user")

    def __init__(self, user: str | None) -> None:
        self.user = user
        self.sessions = 0


class AccountTable:
    """Those that have something here."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: dict[str | None, Account] = {}

    def sessions(self, user: str | None) -> int:
        found = self._accounts.get(user)
        return 0 if found is None else found.sessions

    def join(self, session: Session, user: str | None) -> Account:
        """The session belongs to this user from now on."""
        self.leave(session)
        account = self._accounts.get(user)
        if account is None:
            account = self._accounts[user] = Account(user)
        account.sessions += 1
        return account

    def leave(self, session: Session) -> None:
        """It is over, or somebody else's."""
        account = session.account
        if account is not None:
            account.sessions -= 1
            if not account.sessions:
                del self._accounts[account.user]
