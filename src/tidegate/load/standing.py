"""The modes about connections rather than messages: memory of idle ones, and many held for a minute."""

from __future__ import annotations

from tidegate.load.engine import Engine, Progress
from tidegate.load.result import Result
from tidegate.load.settings import Settings


def run_idle(settings: Settings, engine: Engine, result: Result, progress: Progress | None) -> None:
    raise NotImplementedError


def run_hold(settings: Settings, engine: Engine, result: Result, progress: Progress | None) -> None:
    raise NotImplementedError
