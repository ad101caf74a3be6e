"""Asks each source of proof in its order, slowed down by the guard; the SCRAM method beside it.

Rules: an answer says no more than yes or no. Whatever can be decided at once is; only a password that has to be
hashed, or an address that has to wait, makes it a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.accounts.errors import ScramError
from tidegate.accounts.guard import LoginGuard, address_of
from tidegate.accounts.password_file import PasswordFile
from tidegate.accounts.passwords import NotHeardError, PasswordChecker, TooManyLoginsError
from tidegate.accounts.scram_keys import METHOD
from tidegate.accounts.scram_server import ScramServer
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.mqtt.codes import ReasonCode

log = logging.getLogger("tidegate.accounts")


class ProofSource(Protocol):
    """Decides from what CONNECT brought, at once. None: nothing in it is for this source."""

    def authenticate(self, request: ConnectRequest) -> Verdict | None: ...


@dataclass(slots=True)
class State:
    """What is in force; a reload replaces its parts between two packets."""

    before_passwords: tuple[ProofSource, ...]
    passwords: PasswordFile | None
    after_passwords: tuple[ProofSource, ...]
    allow_anonymous: bool
    guard: LoginGuard
    checker: PasswordChecker
    now: Callable[[], float] = time.monotonic


class AccountsAuthenticator:
    """An `Authenticator` over certificates, tokens and passwords."""

    def __init__(self, state: State) -> None:
        self.state = state

    def authenticate(self, request: ConnectRequest) -> Verdict | Awaitable[Verdict]:
        state = self.state
        address = address_of(request.peer)
        delay = state.guard.check(address, state.now())
        if delay is None:
            return _refuse(ReasonCode.BANNED)
        if delay:
            return self._later(delay, request, address)
        return self._decide(request, address)

    async def _later(self, delay: float, request: ConnectRequest, address: str) -> Verdict:
        await asyncio.sleep(delay)
        # Many may have waited side by side: those behind the limit by now are not heard.
        if self.state.guard.is_refused(address, self.state.now()):
            return _refuse(ReasonCode.BANNED)
        answer = self._decide(request, address)
        return answer if isinstance(answer, Verdict) else await answer

    def _decide(self, request: ConnectRequest, address: str) -> Verdict | Awaitable[Verdict]:
        state = self.state
        for source in state.before_passwords:
            verdict = source.authenticate(request)
            if verdict is not None:
                return self._count(verdict, request, address)
        user, password = request.username, request.password
        if state.passwords is not None and user is not None and password is not None:
            stored, is_real = state.passwords.password_hash(user)
            if is_real and state.checker.is_known(stored, password):
                return self._count(Verdict(user=user), request, address)
            return self._check_password(request, user, password, address)
        return self._without_password(request, address)

    async def _check_password(
        self, request: ConnectRequest, user: str, password: bytes, address: str
    ) -> Verdict:
        state = self.state
        while (passwords := state.passwords) is not None:
            stored, is_real = passwords.password_hash(user)
            try:
                is_right = await state.checker.check(
                    stored, password, address, lambda: not state.guard.is_refused(address, state.now())
                )
            except TooManyLoginsError:
                return _refuse(ReasonCode.SERVER_BUSY)
            except NotHeardError:
                return _refuse(ReasonCode.BANNED)
            if state.passwords is passwords or (is_real, stored) == self._stored_now(user):
                if is_right and is_real:
                    return self._count(Verdict(user=user), request, address)
                break
            # The file was read again meanwhile and says something else about this user: so must we.
        return self._without_password(request, address)

    def _stored_now(self, user: str) -> tuple[bool, str] | None:
        passwords = self.state.passwords
        if passwords is None:
            return None
        stored, is_real = passwords.password_hash(user)
        return is_real, stored

    def _without_password(self, request: ConnectRequest, address: str) -> Verdict:
        """The sources behind the password file; then clients that offered nothing at all."""
        for source in self.state.after_passwords:
            verdict = source.authenticate(request)
            if verdict is not None:
                return self._count(verdict, request, address)
        # A name without proof, or a proof that nothing accepted, is a failed login and not an anonymous client.
        if request.username is None and request.password is None:
            if self.state.allow_anonymous:
                return Verdict(user=None)
            return self._count(_refuse(ReasonCode.NOT_AUTHORIZED), request, address)
        return self._count(_refuse(ReasonCode.BAD_USER_NAME_OR_PASSWORD), request, address)

    def _count(self, verdict: Verdict, request: ConnectRequest, address: str) -> Verdict:
        count_login(self.state, verdict.reason_code == ReasonCode.SUCCESS, address, request)
        return verdict


def count_login(state: State, is_success: bool, address: str, request: ConnectRequest) -> None:
    """Tell guard and log. A user name is logged only if there is such an account: people type passwords there."""
    now = state.now()
    if is_success:
        state.guard.on_success(address, now)
        return
    state.guard.on_failure(address, now)
    known = state.passwords is not None and request.username in state.passwords.accounts
    user = request.username if known else None
    log.info("login refused", extra={"peer": request.peer, "listener": request.listener, "user": user})


class ScramMethod:
    """`AuthenticationMethod` SCRAM-SHA-256 over the password file."""

    name = METHOD

    def __init__(self, state: State) -> None:
        self.state = state

    def start(self, request: ConnectRequest) -> ScramExchange:
        return ScramExchange(self.state, request)


class ScramExchange:
    """One run. A step cannot wait, so the guard here refuses and does not delay.

    Every refusal is 0x87: it must be valid in CONNACK and, for re-authentication, in DISCONNECT.
    """

    __slots__ = ("_passwords", "_request", "_server", "_state", "_steps")

    def __init__(self, state: State, request: ConnectRequest) -> None:
        self._state = state
        self._request = request
        self._passwords = state.passwords
        self._server = ScramServer(state.passwords or PasswordFile({}))
        self._steps = 0

    def step(self, data: bytes | None) -> bytes | Verdict:
        state = self._state
        self._steps += 1
        address = address_of(self._request.peer)
        if state.guard.is_refused(address, state.now()):
            return _refuse(ReasonCode.NOT_AUTHORIZED)
        try:
            if self._steps == 1:
                return self._server.first(data)
            answer = self._server.final(data)
            user = self._server.user
            # The name in CONNECT, or that of the client which authenticates again, must be the proven one.
            if self._request.username not in (None, user):
                raise ScramError("the proof is for another user")
            if state.passwords is not self._passwords and not self._is_unchanged(user):
                raise ScramError("the account has changed")
        except ScramError:
            count_login(state, False, address, self._request)
            return _refuse(ReasonCode.NOT_AUTHORIZED)
        count_login(state, True, address, self._request)
        return Verdict(user=user, data=answer)

    def _is_unchanged(self, user: str) -> bool:
        old, new = self._passwords, self._state.passwords
        return old is not None and new is not None and old.scram_keys(user) == new.scram_keys(user)


def _refuse(code: ReasonCode) -> Verdict:
    return Verdict(reason_code=code)
