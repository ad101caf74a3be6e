"""The listeners of a mosquitto.conf: what was said about each, and the `[[listeners]]` it becomes.

A setting that guarded a listener and has no counterpart must not leave it open: such a listener is kept on the loopback
address, where nobody outside can reach it, until somebody has decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.migrate.document import Entry
from tidegate.migrate.mosquitto_file import Line
from tidegate.migrate.remarks import Kind

LOOPBACK = "127.0.0.1"
EVERYWHERE = "*"
DEFAULT_PORT = 1883
# Options of the listener above them; before any `listener` they are about the default one.
OPTIONS = frozenset(
    {
        "bind_interface", "cafile", "certfile", "keyfile", "listener_allow_anonymous", "max_connections",
        "max_qos", "max_topic_alias", "protocol", "require_certificate", "socket_domain", "tls_version",
        "use_identity_as_username", "websockets_origin",
    }
)  # fmt: skip
# With per_listener_settings, these are too.
PER_LISTENER = frozenset({"acl_file", "allow_anonymous", "allow_zero_length_clientid", "password_file"})

Remarker = Callable[[Kind, Line, str, str], None]


@dataclass(slots=True, kw_only=True)
class MosquittoListener:
    """One listener. `port` 0 with a path as `host` is a unix socket."""

    port: int = DEFAULT_PORT
    host: str = ""
    line: Line | None = None
    options: dict[str, Line] = field(default_factory=dict)
    guard: Line | None = None  # why it has to stay on the loopback address

    @property
    def is_unix(self) -> bool:
        return self.port == 0 and self.host.startswith("/")

    @property
    def is_default(self) -> bool:
        return self.line is None

    def flag(self, option: str) -> bool:
        return option in self.options and self.options[option].as_bool()

    def convert(self, *, allow_anonymous: Entry, remark: Remarker) -> dict[str, Entry]:
        """The table of this listener; says what about it differs."""
        origin = "" if self.line is None else self.line.place
        options = self.options
        is_tls = "certfile" in options and "keyfile" in options
        protocol = options["protocol"].value if "protocol" in options else "mqtt"
        table: dict[str, Entry] = {}
        if self.is_unix:
            table |= {"type": Entry("unix", origin), "path": Entry(self.host)}
        else:
            kind = {"mqtt": ("tcp", "tls"), "websockets": ("ws", "wss")}.get(protocol)
            if kind is None:
                raise options["protocol"].error(f"{protocol!r} is no protocol", "mqtt or websockets")
            table |= {"type": Entry(kind[is_tls], origin), "host": self._host(remark)}
            table["port"] = Entry(self.port)
        if is_tls:
            table |= self._tls(remark)
        elif "certfile" in options or "keyfile" in options:
            line = options.get("certfile") or options["keyfile"]
            raise line.error("certfile and keyfile belong together", "Mosquitto needs both for TLS, too")
        table["allow_anonymous"] = allow_anonymous
        if "max_connections" in options and options["max_connections"].as_int(minimum=-1) > 0:
            line = options["max_connections"]
            table["max_connections"] = Entry(line.as_int(), line.place)
        if protocol == "websockets":
            line = options["protocol"]
            remark(
                Kind.DIFFERS,
                line,
                "the URL path is /mqtt or /; Mosquitto takes any",
                "set path for another one",
            )
            named = options.get("websockets_origin")
            if named is not None:
                table["origins"] = Entry((named.value,), named.place)
            else:
                table["origins"] = Entry(("*",), "Mosquitto lets pages of every site connect")
        return table

    def _host(self, remark: Remarker) -> Entry:
        if self.guard is not None:
            return Entry(LOOPBACK, f"{self.guard.place} {self.guard.option}: not converted")
        if (line := self.options.get("bind_interface")) is not None:
            remark(Kind.LOST, line, "the listener stays on 127.0.0.1", "set host to the interface's address")
            return Entry(LOOPBACK, f"{line.place} bind_interface: not converted")
        domain = self.options.get("socket_domain")
        families = {"ipv4": "0.0.0.0", "ipv6": "::"}
        if self.host or domain is None:
            return Entry(self.host or EVERYWHERE)
        if domain.value not in families:
            raise domain.error(f"{domain.value!r} is no family of addresses", "ipv4 or ipv6")
        return Entry(families[domain.value], domain.place)

    def _tls(self, remark: Remarker) -> dict[str, Entry]:
        options = self.options
        table = {
            name: Entry(options[name].as_path(), options[name].place) for name in ("certfile", "keyfile")
        }
        if self.flag("require_certificate"):
            if "cafile" not in options:
                raise options["require_certificate"].error("there is no cafile to check certificates against")
            table["client_ca"] = Entry(options["cafile"].as_path(), options["cafile"].place)
            table["require_client_certificate"] = Entry(True, options["require_certificate"].place)
        if (version := options.get("tls_version")) is not None and version.value != "tlsv1.2":
            remark(Kind.LOST, version, "TLS 1.2 and 1.3 are accepted", "")
        return table
