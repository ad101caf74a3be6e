"""As much of a node as sessions and retained messages need that serve nobody: who they count for, and memory enough."""

from __future__ import annotations

from typing import Any, cast

from tidegate.broker.account import AccountTable
from tidegate.broker.core import Core
from tidegate.broker.memory import Memory


class Plenty:
    """Of memory; whether it `is_short` is the test's to say."""

    def __init__(self) -> None:
        self.is_short = False
        self.kept_bytes = 0

    def grew(self, size: int) -> None:
        self.kept_bytes += size


class _BareCore:
    def __init__(self, **parts: Any) -> None:
        self.accounts = AccountTable()
        self.memory = cast(Memory, Plenty())
        self.__dict__.update(parts)


def bare_core(**parts: Any) -> Core:
    return cast(Core, _BareCore(**parts))
