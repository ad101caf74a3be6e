"""When to try again: a counter, and waits that grow and drift apart, as those of reconnects do."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tidegate.flow.timeout import DecorrelatedJitter
from tidegate.rpc.errors import RpcError

_GROWN = 20  # attempts after which waits grow no longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """`attempts` in all, the first included. Waits are decorrelated jitter from `base` to `longest`
    (`flow.timeout.DecorrelatedJitter`): those who failed together come back apart.

    `silence`: a call that got no answer at all is sent again after this long; None waits for its deadline. The
    gateway knows it by its key, so that only the answer is repeated.
    """

    attempts: int = 5
    base: float = 0.1
    longest: float = 5.0
    silence: float | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base <= 0.0 or self.longest < self.base:
            raise RpcError(
                f"a retry of {self.attempts} attempts, {self.base:g} to {self.longest:g} s",
                hint="attempts from 1, base above 0, longest not below base",
            )

    def delay(self, attempt: int, random: Random) -> float:
        """The wait after this attempt, the first being 1. Nothing is kept between two: the next may be another
        process's."""
        waits = DecorrelatedJitter(self.base, self.longest, random)
        for _ in range(min(attempt, _GROWN) - 1):
            waits.next_delay()
        return waits.next_delay()

    def after(self, attempt: int, now: float, deadline: float, random: Random) -> float | None:
        """Seconds to wait after this attempt failed; None to give up, because of the count or the deadline."""
        if attempt >= self.attempts:
            return None
        delay = self.delay(attempt, random)
        return delay if now + delay < deadline else None


ONCE = Retry(attempts=1)
