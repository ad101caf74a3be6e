"""Words that depend on a number."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
