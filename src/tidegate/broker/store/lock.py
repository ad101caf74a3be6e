"""One process a store: a lock on a file beside it, which the system releases when the process dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tidegate.broker.store.errors import StoreError


class Lock:
    """Held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise StoreError(
                path, "is in use by another process", "stop that one, or name another folder with --data"
            ) from None

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
