"""Who is logged in: sessions behind a cookie, each with a token that every action must carry, and roles.

Without accounts everybody who reaches the page is the same local user; that is allowed on loopback addresses only. With
accounts, they are those of the broker's password file, and whoever guesses passwords is slowed down as there.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tidegate.accounts import LoginGuard
from tidegate.accounts.password_file import PasswordFile, read_password_file
from tidegate.accounts.passwords import NotHeardError, PasswordChecker, TooManyLoginsError
from tidegate.accounts.rights import Rights
from tidegate.accounts.rights_file import read_rights_file

if TYPE_CHECKING:
    from tidegate.console.settings import ConsoleSettings

IDLE = 8 * 3600.0  # seconds after which an unused session ends
MAX_SESSIONS = 1_000  # the longest unused ends first
RECHECK = 2.0  # seconds between two looks at whether the files have changed
CONTROL = "$tide/control/release"
LOCAL_USER = "local"


class Role(StrEnum):
    """What a user may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(slots=True)
class Session:
    """One browser that is logged in; `token` proves that a request comes from our page."""

    user: str
    role: Role
    used: float
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))


class Sessions:
    """All sessions of one console; used on one loop."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._guard = LoginGuard(failures=5, window=60.0, max_delay=4.0, refuse_after=50)
        self._checker = PasswordChecker(cache=100, max_pending=32, workers=1)
        self._looked_at = 0.0
        self._stamp: tuple[float, ...] | None = None
        self._passwords: PasswordFile | None = None
        self._rights: Rights | None = None
        self._read()

    @property
    def has_accounts(self) -> bool:
        return self._settings.password_file is not None

    def find(self, key: str | None, *, is_use: bool = True) -> Session | None:
        """The session of a cookie, if it is good; it has been used then, unless only somebody looks after it."""
        now = time.monotonic()
        self._reread(now)
        session = self._sessions.get(key or "")
        if session is None:
            return None
        # Without accounts there is nobody to ask for a password, so such a session does not end.
        is_idle = self.has_accounts and now - session.used > IDLE
        if is_idle or not self._is_known(session.user):
            del self._sessions[session.key]
            return None
        session.role = self.role_of(session.user)
        if is_use:
            session.used = now
            self._sessions.move_to_end(session.key)
        return session

    def open_local(self) -> Session:
        """Without accounts: a session for whoever is on this machine."""
        assert not self.has_accounts
        return self._open(LOCAL_USER)

    async def log_in(self, user: str, password: str, address: str) -> Session | None:
        """A session if the password is right. Takes its time for addresses that failed often."""
        delay = self._guard.check(address, time.monotonic())
        if delay is None or self._passwords is None:
            return None
        if delay:
            await asyncio.sleep(delay)
        stored, is_real = self._passwords.password_hash(user)
        try:
            is_right = await self._checker.check(
                stored,
                password.encode(),
                address,
                lambda: not self._guard.is_refused(address, time.monotonic()),
            )
        except (NotHeardError, TooManyLoginsError):
            return None
        if is_right and is_real:
            self._guard.on_success(address, time.monotonic())
            return self._open(user)
        self._guard.on_failure(address, time.monotonic())
        return None

    def log_out(self, session: Session) -> None:
        self._sessions.pop(session.key, None)

    def role_of(self, user: str) -> Role:
        if self._settings.read_only:
            return Role.VIEWER
        if not self.has_accounts or user in self._settings.operators:
            return Role.OPERATOR
        if self._rights is not None and self._rights.of(user, "").may_write(CONTROL):
            return Role.OPERATOR
        return Role.VIEWER

    def close(self) -> None:
        self._checker.close()

    def _open(self, user: str) -> Session:
        session = Session(user, self.role_of(user), time.monotonic())
        self._sessions[session.key] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _is_known(self, user: str) -> bool:
        return self._passwords is None or user in self._passwords.accounts

    def _reread(self, now: float) -> None:
        if now - self._looked_at < RECHECK:
            return
        self._looked_at = now
        try:
            self._read()
        except Exception:  # noqa: BLE001 - a file that is being replaced; what was read last stays in force
            return

    def _read(self) -> None:
        files = [
            path for path in (self._settings.password_file, self._settings.rights_file) if path is not None
        ]
        stamp = tuple(path.stat().st_mtime for path in files if path.exists())
        if stamp == self._stamp:
            return
        if self._settings.password_file is not None:
            old, self._passwords = self._passwords, read_password_file(self._settings.password_file)
            revoked = self._passwords.revoked_since(old) if old is not None else frozenset[str]()
            for session in [each for each in self._sessions.values() if each.user in revoked]:
                self.log_out(session)
        if self._settings.rights_file is not None:
            self._rights = Rights(read_rights_file(self._settings.rights_file))
        self._stamp = stamp
