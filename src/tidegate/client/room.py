"""Who may send next: a bound on what is open, first come, first served."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.client.waiters import Waiters


class Room:
    """Room for `size` things, of which `used` says how many there are.

    It counts nothing itself, because a thing can go without a word to those who wait for its place (a caller
    that gave up); whoever knows that things may have gone calls `wake`.
    """

    def __init__(self, size: int, used: Callable[[], int]) -> None:
        self._size = size
        self._used = used
        self._promised = 0
        self._waiters = Waiters(on_missed=self._give_back)

    @property
    def is_free(self) -> bool:
        return not self._waiters and self._used() + self._promised < self._size

    async def wait(self) -> None:
        """Wait for a place; the caller takes it before it awaits anything else."""
        if self.is_free:
            return
        await self._waiters.wait()
        self._promised -= 1

    def close(self) -> None:
        """Let all go who wait; whoever does has to ask whether there still is anything to wait for."""
        while self._waiters.wake_one():
            self._promised += 1

    def wake(self) -> None:
        """Give free places to those who wait longest."""
        free = self._size - self._used() - self._promised
        while free > 0 and self._waiters.wake_one():
            self._promised += 1
            free -= 1

    def _give_back(self) -> None:
        self._promised -= 1
        self.wake()
