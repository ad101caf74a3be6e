"""Bounds of a space broker: every one has a number, and what happens beyond it is in docs/space.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True, frozen=True)
class SpaceLimits:
    """Times in seconds, sizes in bytes."""

    query_time: float = 5.0  # of one query, or of the WHERE of an update
    request_bytes: int = 64 * 1024 * 1024
    query_bytes: int = 1024 * 1024  # of the text of a query, or of the WHERE of an update
    watch_bytes: int = 64 * 1024  # of the text of a watch: it is read where everybody waits
    answer_bytes: int = 32 * 1024 * 1024
    answer_rows: int = 1_000_000
    triples: int = 50_000_000  # in one space
    spaces: int = 64
    watches: int = 10_000  # standing queries of one space
    watch_rows: int = 100_000  # in the answer of one of them
    watch_time: float = 0.25  # to bring one of them up to date; one that takes longer is ended
    history: int = 1_000  # notifications kept for each, for those who missed some
    history_rows: int = 20_000
    snapshot_bytes: int = 64 * 1024 * 1024  # of journal that make a snapshot worth while
    lease: float = 600.0  # a watch that nobody asked for in this time ends

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
