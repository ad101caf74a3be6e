"""Files with users' data are for their owner alone: folders 0700, files 0600.

A folder whose owner shares it on purpose, by the set-group-ID bit, shares what is made in it with its group as well.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

OWN_FOLDER: Final = 0o700
OWN_FILE: Final = 0o600


def make_folder(path: Path) -> None:
    """With the folders it is in, as far as they are missing. Those that are there stay as they are."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        shared = stat.S_IRWXG if _is_shared(each.parent) else 0
        each.mkdir(OWN_FOLDER, exist_ok=True)
        if shared:
            each.chmod(OWN_FOLDER | shared | stat.S_ISGID)


def opener(path: str | os.PathLike[str], flags: int) -> int:
    """For `open(…, opener=opener)`; takes a file that is there from everybody else, too."""
    is_shared = _is_shared(Path(path).parent)
    descriptor = os.open(path, flags | os.O_CLOEXEC, OWN_FILE | (stat.S_IRGRP if is_shared else 0))
    mode, strangers = os.fstat(descriptor).st_mode, _strangers(is_shared)
    if mode & strangers:
        with contextlib.suppress(OSError):  # somebody else's
            os.fchmod(descriptor, stat.S_IMODE(mode) & ~strangers)
    return descriptor


def tighten(*paths: Path) -> None:
    """Take from everybody else what an older version left open to them, as far as it is ours and there."""
    for path in paths:
        with contextlib.suppress(OSError):
            mode, strangers = path.lstat().st_mode, _strangers(_is_shared(path.parent))
            if mode & strangers and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~strangers)


def _strangers(is_shared: bool) -> int:
    return stat.S_IRWXO if is_shared else stat.S_IRWXO | stat.S_IRWXG


def _is_shared(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_ISGID)
