"""When to try again: a counter, waits that grow, and jitter so that those who failed together come back apart."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tidegate.rpc.errors import RpcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """`attempts` in all, the first included. The wait before attempt n+1 is drawn from the upper half of
    `base` · 2^(n-1), at most `longest`: half is enough to spread, and the lower half would hit what is still ill.

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

    def bound(self, attempt: int) -> float:
        """The longest wait after this attempt, the first being 1."""
        return min(self.longest, self.base * 2.0 ** min(attempt - 1, 60))

    def delay(self, attempt: int, random: Random) -> float:
        bound = self.bound(attempt)
        return random.uniform(bound / 2.0, bound)

    def after(self, attempt: int, now: float, deadline: float, random: Random) -> float | None:
        """Seconds to wait after this attempt failed; None to give up, because of the count or the deadline."""
        if attempt >= self.attempts:
            return None
        delay = self.delay(attempt, random)
        return delay if now + delay < deadline else None


ONCE = Retry(attempts=1)
