"""Checks passwords against their hashes without holding up the event loop, and remembers who got it right.

Theory of operation. A check takes tens of milliseconds of one core, so it runs in a small pool of threads
(Argon2 releases the interpreter lock); at most `max_pending` wait for it, more are told to come back. Addresses take
turns, and who is told to come back is of the address for which most checks wait. After an outage thousands of clients
return at once: a successful check is remembered as a keyed hash of the password, with a key that only this process
knows, until the stored hash changes. Clients of one address that log in with the same password at the same time share
one check.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from tidegate.accounts import mosquitto_hashes
from tidegate.accounts.scram_keys import digest

WORKERS = max(1, min(4, (os.cpu_count() or 2) // 2))
MAX_PASSWORD = 4_096  # bytes; longer ones cost time to hash and protect nothing more

# The stored hash, which changes with the account, and the keyed hash of the password.
_Key: TypeAlias = tuple[str, bytes]


class NotHeardError(Exception):
    """The address lost its right to an answer while its check waited for its turn."""


class TooManyLoginsError(Exception):
    """More checks wait than may."""


class Turns:
    """So many checks at once; of those that wait, one of each address after the other."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def wait(self, address: str) -> None:
        """Until its turn has come; call `next` when it is over. Raises TooManyLoginsError if others need the place."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.next()  # it had its turn already
            raise

    def next(self) -> None:
        while self._queues:
            address, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._queues[address] = queue  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def make_room(self, address: str) -> bool:
        """Send away the last one of the address with most; False if that is the one that asks."""
        if not self._queues:
            return False
        crowd = max(self._queues, key=lambda each: len(self._queues[each]))
        queue = self._queues[crowd]
        if len(queue) <= len(self._queues.get(address, ())) + 1:
            return False
        turn = queue.pop()
        if not turn.done():
            turn.set_exception(TooManyLoginsError())
        return True


class PasswordChecker:
    """Used on one event loop. `close` ends its threads."""

    def __init__(self, *, cache: int, max_pending: int, workers: int = WORKERS) -> None:
        self.capacity = cache
        self.max_pending = max_pending
        self._workers = workers
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[_Key, None] = OrderedDict()
        self._running: dict[tuple[_Key, str], asyncio.Task[bool]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._turns = Turns(workers)
        self.checks = self.cache_hits = 0

    def is_known(self, stored: str, password: bytes) -> bool:
        """Whether this password was right for this stored hash before; costs microseconds."""
        key = (stored, digest(self._key, password))
        if key not in self._known:
            return False
        self._known.move_to_end(key)
        self.cache_hits += 1
        return True

    async def check(self, stored: str, password: bytes, address: str, may_go_on: Callable[[], bool]) -> bool:
        """Whether the password fits. `may_go_on` is asked when the check's turn has come.

        Raises NotHeardError if it says no, TooManyLoginsError at once if too many checks wait.
        """
        key = (stored, digest(self._key, password))
        # Shared within one address only: another one's standing must not decide about this one.
        shared = (key, address)
        task = self._running.get(shared)
        if task is None:
            if len(self._running) >= self.max_pending and not self._turns.make_room(address):
                raise TooManyLoginsError
            task = asyncio.create_task(self._check(key, password, address, may_go_on))
            self._running[shared] = task
            task.add_done_callback(lambda done: self._on_done(shared, done))
        # Shielded: a client that leaves must not take the answer away from those that share it.
        return await asyncio.shield(task)

    def _on_done(self, shared: tuple[_Key, str], task: asyncio.Task[bool]) -> None:
        self._running.pop(shared, None)
        if not task.cancelled():
            task.exception()  # everyone who wanted to know may have left; asyncio would complain about that

    async def _check(self, key: _Key, password: bytes, address: str, may_go_on: Callable[[], bool]) -> bool:
        await self._turns.wait(address)
        try:
            if not may_go_on():
                raise NotHeardError
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="tidegate-passwords")
            self.checks += 1
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._pool, verify_password, key[0], password)
        finally:
            self._turns.next()
        if is_right and self.capacity:
            self._known[key] = None
            while len(self._known) > self.capacity:
                self._known.popitem(last=False)
        return is_right

    def keep(self, stored: frozenset[str]) -> None:
        """Forget every password whose hash is not stored any more."""
        for key in [key for key in self._known if key[0] not in stored]:
            del self._known[key]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def statistics(self) -> dict[str, int]:
        return {
            "password_checks": self.checks,
            "password_cache_hits": self.cache_hits,
            "password_cache": len(self._known),
            "logins_pending": len(self._running),
        }


def verify_password(stored: str, password: bytes) -> bool:
    """One check, in constant time for the given parameters."""
    from argon2.exceptions import VerificationError
    from argon2.low_level import Type, verify_secret

    # Hashed in any case, so that an overlong password takes the usual time.
    is_short = len(password) <= MAX_PASSWORD
    if stored.startswith(mosquitto_hashes.PREFIXES):
        return mosquitto_hashes.verify(stored, password[:MAX_PASSWORD]) and is_short
    try:
        return verify_secret(stored.encode(), password[:MAX_PASSWORD], Type.ID) and is_short
    except VerificationError:
        return False


def hash_password(password: bytes, *, time_cost: int, memory_cost_kib: int, parallelism: int) -> str:
    """A new Argon2id hash with a random salt."""
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_cost_kib, parallelism=parallelism)
    return hasher.hash(password)
