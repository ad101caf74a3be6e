"""Keeps apart threads that read a store and children that write to their copy of it.

A thread that reads holds locks of the store for moments. A child that is forked in such a moment inherits them locked,
and nobody in it will ever let go: it may read all the same, but the first write to such a place waits for ever. So a
child that writes is forked when no thread reads. That takes only the moment of the fork.
"""

from __future__ import annotations

import asyncio

from tidegate.space.errors import Fault, SpaceError


class Gate:
    """Of one store; used in the thread of the loop only."""

    def __init__(self) -> None:
        self.late = 0  # threads that took too long and are still at it
        self._reading = 0
        self._wanted = 0  # children that wait to be forked
        self._changed = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for the last thread to end: none should begin."""
        return self._wanted > 0

    def enter(self) -> None:
        self._reading += 1

    def leave(self) -> None:
        self._reading -= 1
        self._changed.set()

    async def open(self) -> None:
        """Wait until a thread may begin."""
        while self._wanted:
            await self._change()

    async def empty(self, seconds: float) -> None:
        """Wait until no thread reads: up to the next wait of the caller none does. Raises `SpaceError`."""
        if self.late:
            raise self._busy(seconds)
        self._wanted += 1
        try:
            async with asyncio.timeout(seconds):
                while self._reading:
                    await self._change()
        except TimeoutError:
            raise self._busy(seconds) from None
        finally:
            self._wanted -= 1
            self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _busy(self, seconds: float) -> SpaceError:
        return SpaceError(
            Fault.BUSY, "a query takes longer than it should", hint="try again later", retry_after=seconds
        )
