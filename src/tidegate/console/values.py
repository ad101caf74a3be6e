"""What a document says, read with care: anybody may have written it, and a newer node may tell more than we know."""

from __future__ import annotations

from typing import Any


def number(value: object) -> float:
    """A number of a document; what is none, not finite or absurd counts as 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        return 0.0
    return float(value)


def text(value: object) -> str:
    return "" if value is None else str(value)


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; what else is in it is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
