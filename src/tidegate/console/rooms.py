"""Parts of Tidegate that may be there or not: found when a page needs them, so that the console works without."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from typing import Any


def how_to_install(extra: str) -> str:
    """Right for who has a copy of the repository, and for who has a wheel (docs/install.md)."""
    return f"the extra {extra} brings it: pip install '.[{extra}]' in a copy of the repository, or 'tidegate[{extra}]'"


@lru_cache
def find_room(name: str) -> Any:
    """The module `tidegate.<name>`, or None if it, or something it needs, is not installed."""
    try:
        return importlib.import_module(f"tidegate.{name}")
    except ImportError:
        return None
