"""What a node can be told, and how it is read: see `model` for the keys and `load` for the sources."""

from tidegate.settings.environment import misspelt_variables
from tidegate.settings.errors import SettingsError
from tidegate.settings.load import given_keys, known_keys, load_settings
from tidegate.settings.model import (
    AUTO,
    NO_SOCKET,
    ListenerSettings,
    ListenerType,
    LogFormat,
    LogLevel,
    LogSettings,
    MetricsSettings,
    Settings,
    is_loopback,
)
from tidegate.settings.render import dump, render_reference

__all__ = [
    "AUTO",
    "NO_SOCKET",
    "ListenerSettings",
    "ListenerType",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "MetricsSettings",
    "Settings",
    "SettingsError",
    "dump",
    "given_keys",
    "is_loopback",
    "known_keys",
    "load_settings",
    "misspelt_variables",
    "render_reference",
]
