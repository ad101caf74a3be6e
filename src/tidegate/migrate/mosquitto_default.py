"""Mosquitto's default listener: options before the first `listener` may open it, also beside others.

Found by trying each of them with Mosquitto 2.0.11; tests/e2e does so again. Without any listener at all Mosquitto
serves the loopback address only; with the default one it serves port 1883 on every address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.migrate.mosquitto_file import Line

# These open it whatever they say, and
OPENING: Final = frozenset(
    {
        "bind_interface", "cafile", "capath", "certfile", "ciphers", "ciphers_tls1.3", "crlfile", "dhparamfile",
        "keyfile", "psk_hint", "socket_domain", "tls_engine",
    }
)  # fmt: skip
# these only if they are switched on.
SWITCHES: Final = frozenset(
    {
        "require_certificate", "use_identity_as_username", "use_subject_as_username", "use_username_as_clientid",
    }
)  # fmt: skip
# Others do unless they say what is the case anyway.
DEFAULTS: Final = {"max_connections": "-1", "max_qos": "2", "protocol": "mqtt"}
# With per_listener_settings, accounts are the default listener's as well.
OPENING_PER_LISTENER: Final = frozenset({"auth_plugin", "password_file", "plugin", "psk_file"})


def opening_line(lines: Mapping[str, Line], *, is_per_listener: bool) -> Line | None:
    """Of the lines before the first `listener`, the first one by which Mosquitto opens the default listener."""
    return next((line for line in lines.values() if _opens(line, is_per_listener)), None)


def _opens(line: Line, is_per_listener: bool) -> bool:
    option = line.option
    if option in OPENING or (is_per_listener and option in OPENING_PER_LISTENER):
        return True
    if option in SWITCHES:
        return line.as_bool()
    if option in DEFAULTS:
        return line.value != DEFAULTS[option]
    return is_per_listener and option == "allow_zero_length_clientid" and not line.as_bool()
