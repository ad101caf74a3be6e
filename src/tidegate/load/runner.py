"""`run`: one load run against any broker, from options to result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tidegate.load.clients import Access
from tidegate.load.engine import Engine, Progress
from tidegate.load.result import Result
from tidegate.load.settings import Mode, Settings, make_settings
from tidegate.load.standing import run_hold, run_idle
from tidegate.load.traffic import run_traffic

_RUNNERS = {Mode.IDLE: run_idle, Mode.HOLD: run_hold}


def run(
    *,
    mode: str,
    host: str | None = None,
    port: int | None = None,
    pid: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Result:
    """Put one load on a broker and return what was found.

    `options` are the other fields of `Settings`; None means the mode's default. With `pid` the broker's CPU
    time (and memory, where it matters) is measured. `progress` is called with a line of text now and then.
    Raises SettingsError before anything is started, ConnectionRefused, ConnectionLost, or another LoadError.
    Takes warm-up plus `seconds` plus the time to connect and to drain, and keeps one core busy meanwhile.
    """
    settings = make_settings(mode, host=host, port=port, pid=pid, **options)
    result = Result(
        mode=settings.mode,
        protocol=settings.protocol,
        qos=settings.qos,
        publishers=settings.publishers,
        subscribers=settings.subscribers,
        payload_bytes=settings.payload_bytes,
        settings=_stated(settings),
    )
    access = Access(
        host=settings.host,
        port=settings.port,
        protocol=settings.protocol,
        username=settings.username,
        password=settings.password,
        connect_rate=settings.connect_rate,
        keep_alive=settings.keep_alive if settings.mode is Mode.HOLD else 0,
    )
    with Engine(access) as engine:
        _RUNNERS.get(settings.mode, run_traffic)(settings, engine, result, progress)
    return result


def _stated(settings: Settings) -> dict[str, Any]:
    """Return the settings a reader needs to repeat the run; never the password."""
    hidden = {"password", "username", "pid", "name", "host", "port"}
    return {name: value for name, value in asdict(settings).items() if name not in hidden}
