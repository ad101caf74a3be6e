"""Checking passwords off the loop: the cache, sharing, and the bound on waiting."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.accounts.support import CHEAP
from tidegate.accounts.passwords import (
    MAX_PASSWORD,
    NotHeardError,
    PasswordChecker,
    TooManyLoginsError,
    hash_password,
    verify_password,
)

STORED = hash_password(b"secret", **CHEAP)
OTHER = hash_password(b"secret", **CHEAP)


def always() -> bool:
    return True


@contextmanager
def checker(cache: int = 10, max_pending: int = 10, workers: int = 1) -> Iterator[PasswordChecker]:
    made = PasswordChecker(cache=cache, max_pending=max_pending, workers=workers)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("password", "expected"), [(b"secret", True), (b"Secret", False), (b"", False), (b"secret\0", False)]
)
def test_only_the_very_password_fits(password: bytes, expected: bool) -> None:
    assert verify_password(STORED, password) == expected


def test_an_overlong_password_never_fits() -> None:
    stored = hash_password(b"x" * MAX_PASSWORD, **CHEAP)
    assert verify_password(stored, b"x" * MAX_PASSWORD) and not verify_password(
        stored, b"x" * (MAX_PASSWORD + 1)
    )


def test_a_success_is_remembered_and_a_failure_is_not() -> None:
    async def main() -> None:
        with checker() as checks:
            assert await checks.check(STORED, b"secret", "a", always)
            assert not await checks.check(STORED, b"wrong", "a", always)
            assert checks.is_known(STORED, b"secret")
            assert not checks.is_known(STORED, b"wrong")
            assert not checks.is_known(OTHER, b"secret")  # another account, or another password since
            assert checks.statistics()["password_cache_hits"] == 1

    asyncio.run(main())


def test_what_is_not_stored_any_more_is_forgotten() -> None:
    async def main() -> None:
        with checker() as checks:
            await checks.check(STORED, b"secret", "a", always)
            await checks.check(OTHER, b"secret", "a", always)
            checks.keep(frozenset({OTHER}))
            assert not checks.is_known(STORED, b"secret") and checks.is_known(OTHER, b"secret")

    asyncio.run(main())


def test_the_cache_is_bounded() -> None:
    async def main() -> None:
        with checker(cache=1) as checks:
            await checks.check(STORED, b"secret", "a", always)
            await checks.check(OTHER, b"secret", "a", always)
            assert not checks.is_known(STORED, b"secret") and checks.is_known(OTHER, b"secret")
        with checker(cache=0) as checks:
            await checks.check(STORED, b"secret", "a", always)
            assert not checks.is_known(STORED, b"secret")

    asyncio.run(main())


def test_clients_with_the_same_password_share_one_check() -> None:
    async def main() -> None:
        with checker(max_pending=1) as checks:
            answers = await asyncio.gather(*(checks.check(STORED, b"secret", "a", always) for _ in range(50)))
            assert answers == [True] * 50 and checks.checks == 1

    asyncio.run(main())


def test_a_client_that_leaves_does_not_take_the_answer_from_the_others() -> None:
    async def main() -> None:
        with checker() as checks:
            first, second = (
                asyncio.create_task(checks.check(STORED, b"secret", "a", always)) for _ in range(2)
            )
            await asyncio.sleep(0)
            first.cancel()
            assert await second

    asyncio.run(main())


def test_more_checks_than_may_wait_are_sent_away_at_once() -> None:
    async def main() -> None:
        with checker(max_pending=3) as checks:
            tasks = [asyncio.create_task(checks.check(STORED, b"%d" % i, "a", always)) for i in range(5)]
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(result, TooManyLoginsError) for result in results] == [False] * 3 + [True] * 2

    asyncio.run(main())


def test_an_address_that_lost_its_turn_is_not_heard() -> None:
    async def main() -> None:
        with checker() as checks:
            with pytest.raises(NotHeardError):
                await checks.check(STORED, b"secret", "a", lambda: False)
            assert checks.checks == 0

    asyncio.run(main())
