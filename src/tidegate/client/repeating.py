"""Asks the same thing again and again, as often as a timeout policy says (spec 3, Algorithm 1).

One task, two timers: the next check, and the reaction to a notification that was told by `nudge`. Whatever is asked,
and however, is the caller's: a request over MQTT, a call, a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from random import Random

from tidegate.flow.timeout import UNKNOWN, Announcement, Check, Loop, Strategy

LONGEST = 86_400.0  # timers of a day at most: some loops never check


@dataclass(slots=True, kw_only=True)
class Answered:
    """What came back. `losses`: updates it brought that no notification had told of. `is_dropped`: nothing came.

    `seconds` is what the response took, None if all of asking was waiting for it.
    """

    losses: int = 0
    load: Announcement = UNKNOWN
    is_dropped: bool = False
    seconds: float | None = None


class Repeating:
    """`ask` must give up by itself after a while, and then say `is_dropped`; what it raises ends `run`."""

    def __init__(
        self, ask: Callable[[], Awaitable[Answered]], loop: Loop, random: Random | None = None
    ) -> None:
        self._ask = ask
        self.loop = loop
        self._random = random or Random()
        self._nudged = asyncio.Event()
        self._load = UNKNOWN
        self._last = 0.0
        self._next_check = inf
        self._react_at = inf
        self.checks = 0
        self.reactions = 0
        self.dropped = 0
        self.losses = 0
        self.congested = 0
        self.is_late = False
        """Whether an answer is waited for that has taken so long that it means congestion."""
        self.late = 0

    def nudge(self, load: Announcement = UNKNOWN) -> None:
        """Something happened: ask soon, when the policy says that it is this client's turn."""
        if load is not UNKNOWN:
            self._load = load
        self._nudged.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        clock = asyncio.get_running_loop()
        self._last = clock.time()
        self._next_check = self._last + self.loop.start(self._random)
        while True:
            await self._wait_until(min(self._next_check, self._react_at))
            now = clock.time()
            if self._nudged.is_set():
                self._nudged.clear()
                if self._react_at == inf:
                    self._react_at = now + self.loop.react(self._random, self._load)
            if now >= self._react_at:
                await self._react()
            elif now >= self._next_check:
                await self._check()

    async def _wait_until(self, moment: float) -> None:
        seconds = moment - asyncio.get_running_loop().time()
        if seconds <= 0.0 or self._nudged.is_set():
            return
        try:
            async with asyncio.timeout(min(seconds, LONGEST)):
                await self._nudged.wait()
        except TimeoutError:
            pass  # it is the timer's turn

    async def _timed(self) -> Check:
        clock = asyncio.get_running_loop()
        began = clock.time()
        threshold = self.loop.threshold
        alarm = None if threshold == inf else clock.call_later(threshold, self._on_late)
        try:
            answered = await self._ask()
        finally:
            self.is_late = False
            if alarm is not None:
                alarm.cancel()
        self.dropped += answered.is_dropped
        self.losses += answered.losses
        return Check(
            interval=began - self._last,
            duration=clock.time() - began if answered.seconds is None else answered.seconds,
            losses=answered.losses,
            is_dropped=answered.is_dropped,
            load=answered.load,
        )

    def _on_late(self) -> None:
        self.is_late = True
        self.late += 1

    async def _check(self) -> None:
        self.checks += 1
        check = await self._timed()
        self._on_check(check)
        if not check.is_dropped and self.loop.counts_reactions:
            self._react_at = inf  # the check brought what the reaction was to ask for

    def _on_check(self, check: Check) -> None:
        now = asyncio.get_running_loop().time()
        self._last = now - check.duration
        self._next_check = now + self.loop.check(check, self._random)
        self.congested += self.loop.is_congested

    async def _react(self) -> None:
        self.reactions += 1
        self._react_at = inf
        check = await self._timed()
        if check.is_dropped:
            wait = self.loop.retry(check, self._random)
            if wait is not None:
                self._react_at = asyncio.get_running_loop().time() + wait
        elif self.loop.counts_reactions:
            self._on_check(check)

    def statistics(self) -> dict[str, float]:
        """Counters; the policy's times in seconds; ν, K, T and τ where it adapts to losses and has seen some."""
        return {
            "checks": self.checks,
            "reactions": self.reactions,
            "dropped": self.dropped,
            "losses": self.losses,
            "congested": self.congested,
            "t_ast": self.loop.t_ast,
            "t_bck": self.loop.t_bck,
            "t_avg": self.loop.t_avg,
            "late": self.late,
            **_estimates(self.loop),
        }


def _estimates(loop: Loop) -> dict[str, float]:
    strategy = getattr(loop, "strategy", None)
    if not isinstance(strategy, Strategy):
        return {}
    found = {"nu": strategy.losses.nu, "kind": strategy.losses.kind}
    expected = strategy.expected()
    return found if expected is None else {**found, "end": expected.end, "tau": expected.mean}
