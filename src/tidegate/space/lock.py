"""One process a folder: the system releases the lock when the process dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tidegate.space.errors import Fault, SpaceError


class FolderLock:
    """Held from construction to `release`."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise SpaceError(
                Fault.INTERNAL,
                f"{folder} is in use by another process",
                hint="stop that one, or name another folder with --data",
            ) from None

    def release(self) -> None:
        if self._file >= 0:
            # Closing alone is not enough: a child that was forked a moment ago still has the file open.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1
