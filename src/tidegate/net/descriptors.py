"""How many sockets a process may have open."""

from __future__ import annotations

import resource
import sys
from typing import Final

RESERVE: Final = 128  # descriptors for files, listeners and the operator
MOST: Final = 1_048_576


def most_sockets() -> int:
    """For clients, by the limit of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft - RESERVE)


def raise_limit() -> None:
    """As far as the system allows this process to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
