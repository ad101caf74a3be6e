"""Puts the room together: settings in, hooks for a broker out, files read again on demand.

Rules: a reload reads everything before it changes anything, so a fault leaves the old state in force; what the
broker was handed stays the same object, only what it decides by is swapped.
"""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass
from pathlib import Path

from tidegate.accounts.authenticator import AccountsAuthenticator, ProofSource, ScramMethod, State
from tidegate.accounts.certificates import CertificateSource
from tidegate.accounts.errors import AccountsError
from tidegate.accounts.guard import LoginGuard
from tidegate.accounts.password_file import PasswordFile, read_password_file
from tidegate.accounts.passwords import PasswordChecker
from tidegate.accounts.rights import Rights
from tidegate.accounts.rights_file import RightsTable, read_rights_file
from tidegate.accounts.settings import AccountsSettings, CertificateIdentity, Source
from tidegate.accounts.token_keys import read_keys
from tidegate.accounts.tokens import TokenSource
from tidegate.broker.hooks import Hooks

log = logging.getLogger("tidegate.accounts")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything the settings name, read and checked, but not yet in force."""

    settings: AccountsSettings
    before: tuple[ProofSource, ...]
    passwords: PasswordFile | None
    after: tuple[ProofSource, ...]
    rights: RightsTable | None

    @property
    def has_proofs(self) -> bool:
        return bool(self.before or self.after) or self.passwords is not None

    @property
    def has_scram(self) -> bool:
        return self.passwords is not None and self.settings.scram


class Accounts:
    """Who gets in and who may do what, from files. AccountsError if one cannot be used."""

    def __init__(self, settings: AccountsSettings) -> None:
        loaded = load(settings)
        self.settings = settings
        self._has_proofs = loaded.has_proofs
        self._state = State(
            before_passwords=loaded.before,
            passwords=loaded.passwords,
            after_passwords=loaded.after,
            allow_anonymous=settings.allow_anonymous,
            guard=_guard(settings),
            checker=PasswordChecker(cache=settings.password_cache, max_pending=settings.max_pending_logins),
        )
        self._rights: Rights | None = None
        if loaded.rights is not None:
            self._rights = Rights(
                loaded.rights, is_strict=settings.subscribe_strict, sys_readable=settings.sys_readable
            )
        self._has_scram = loaded.has_scram
        self._revoked: frozenset[str] = frozenset()

    def hooks(self) -> Hooks:
        """What to plug into the broker; parts that no setting asks for are left empty and cost nothing."""
        return Hooks(
            authenticator=AccountsAuthenticator(self._state) if self._has_proofs else None,
            methods=(ScramMethod(self._state),) if self._has_scram else (),
            authoriser=self._rights,
            has_account=self.has_account if self._has_proofs else None,
            may_be_named=None if self._rights is None else self._rights.may_be_named,
        )

    def reload(self, settings: AccountsSettings | None = None) -> None:
        """Read all files again, by other settings if given; on AccountsError nothing has changed.

        Afterwards the broker must forget cached rights, and close (0x87) clients that are not `still_allowed`.
        Reading takes about 30 ms for each thousand accounts; `load` in a thread and `apply` on the loop do the same
        without holding it up.
        """
        self.apply(load(settings or self.settings))

    def apply(self, loaded: Loaded) -> None:
        """Put in force what `load` has read; AccountsError, with nothing changed, if that needs a restart."""
        settings = loaded.settings
        before = (self._has_proofs, self._has_scram, self._rights is not None)
        if (loaded.has_proofs, loaded.has_scram, loaded.rights is not None) != before:
            raise AccountsError(
                "accounts or rights were switched on or off", hint="restart the broker to apply that"
            )
        guard = _guard(settings)
        state = self._state
        guard.adopt(state.guard)
        old, new = state.passwords, loaded.passwords
        self._revoked = (new or PasswordFile({})).revoked_since(old) if old is not None else frozenset()
        state.before_passwords, state.after_passwords = loaded.before, loaded.after
        state.passwords, state.guard = new, guard
        state.allow_anonymous = settings.allow_anonymous
        state.checker.capacity, state.checker.max_pending = (
            settings.password_cache,
            settings.max_pending_logins,
        )
        state.checker.keep(
            frozenset(a.password_hash for a in new.accounts.values() if a.password_hash)
            if new
            else frozenset()
        )
        if self._rights is not None and loaded.rights is not None:
            self._rights.replace(
                loaded.rights, is_strict=settings.subscribe_strict, sys_readable=settings.sys_readable
            )
        self.settings = settings

    def still_allowed(self, user: str | None) -> bool:
        """Whether a client that was let in as `user` may stay after the last reload.

        Not so if its account is gone or has another password; clients without user name stay as long as they are
        let in. Users of tokens and certificates stay: those run out by themselves.
        """
        if user is None:
            return not self._has_proofs or self._state.allow_anonymous
        return user not in self._revoked

    def has_account(self, user: str) -> bool:
        """Whether the user can still log in; where tokens or certificates name users, all may."""
        state = self._state
        if state.passwords is None or state.before_passwords or state.after_passwords:
            return True
        return user in state.passwords.accounts

    def statistics(self) -> dict[str, int]:
        passwords = self._state.passwords
        return {
            "accounts": len(passwords.accounts) if passwords is not None else 0,
            **self._state.guard.statistics(),
            **self._state.checker.statistics(),
        }

    def close(self) -> None:
        """End the threads that check passwords."""
        self._state.checker.close()


def _guard(settings: AccountsSettings) -> LoginGuard:
    return LoginGuard(
        failures=settings.guard_failures,
        window=settings.guard_window,
        max_delay=settings.guard_max_delay,
        refuse_after=settings.guard_refuse_after,
    )


def load(settings: AccountsSettings) -> Loaded:
    """Read what the settings name; sources without their file or setting are left out. Safe in any thread."""
    try:
        order = [Source(name) for name in settings.sources]
    except ValueError:
        known = ", ".join(source.value for source in Source)
        raise AccountsError("an unknown source of identity", hint=f"accounts.sources takes {known}") from None
    if len(set(order)) != len(order):
        raise AccountsError("a source of identity is named twice", hint="name each in accounts.sources once")
    passwords: PasswordFile | None = None
    parts: tuple[list[ProofSource], list[ProofSource]] = ([], [])
    for source in order:
        place = parts[passwords is not None]
        if source is Source.PASSWORD and settings.password_file is not None:
            _warn_if_open(settings.password_file)
            passwords = read_password_file(settings.password_file)
        elif source is Source.JWT and settings.jwt_keys is not None:
            place.append(TokenSource(read_keys(settings.jwt_keys, settings.jwt_algorithms), settings))
        elif source is Source.CERTIFICATE and settings.certificate_identity is not CertificateIdentity.OFF:
            place.append(CertificateSource(settings.certificate_identity, settings.certificate_username))
    rights = read_rights_file(settings.rights_file) if settings.rights_file is not None else None
    return Loaded(settings, tuple(parts[0]), passwords, tuple(parts[1]), rights)


def _warn_if_open(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # reading it says what is wrong
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        log.warning("password file is open to every user of this machine", extra={"file": str(path)})
