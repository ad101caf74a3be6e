"""Load tool: puts a stated load on any MQTT broker and measures what it costs the broker."""

from tidegate.load.errors import (
    ConnectionLost,
    ConnectionRefused,
    LoadError,
    SettingsError,
    UnexpectedPacket,
)
from tidegate.load.result import Result
from tidegate.load.runner import run
from tidegate.load.settings import Mode, Settings, make_settings

__all__ = [
    "ConnectionLost",
    "ConnectionRefused",
    "LoadError",
    "Mode",
    "Result",
    "Settings",
    "SettingsError",
    "UnexpectedPacket",
    "make_settings",
    "run",
]
