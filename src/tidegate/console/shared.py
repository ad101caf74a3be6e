"""One answer for all who ask for the same thing. A failure is one, too: whoever waited for it does not ask again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from tidegate.errors import TidegateError

FRESH: Final = 1.0  # seconds that an answer is good for
SHARE: Final = 50.0
T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """What a look found, for a second; with `share`, for so many times as long as the look took, if that is more.

    So no more than one part in `share` of the time is spent on looking, however many pages ask.
    """

    def __init__(self, share: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._lock = asyncio.Lock()  # pages that ask at the same time wait for one answer
        self._answer: T | TidegateError | None = None
        self._good_until = 0.0

    async def get(self, look: Callable[[], Awaitable[T]]) -> T:
        """The answer that there is, or that of `look`; raises the error that it raised."""
        async with self._lock:
            if self._answer is None or self._clock() >= self._good_until:
                began = self._clock()
                try:
                    self._answer = await look()
                except TidegateError as error:
                    self._answer = error
                now = self._clock()
                self._good_until = now + max(FRESH, (now - began) * self._share)
            answer = self._answer
        if isinstance(answer, TidegateError):
            raise answer.with_traceback(None)  # it is raised many times
        return answer
