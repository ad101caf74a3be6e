"""From mosquitto.conf to tidegate.toml.

Every line becomes a setting or a remark. What is written loads, and lets nobody do more than before: where an option
that guarded something has no counterpart, the listeners concerned stay on the loopback address.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.accounts.errors import AccountsError
from tidegate.accounts.mosquitto_hashes import PREFIXES
from tidegate.accounts.password_file import read_password_file
from tidegate.accounts.rights_file import read_rights_file
from tidegate.migrate import mosquitto_options as options
from tidegate.migrate.document import Document, Entry
from tidegate.migrate.mosquitto_default import opening_line
from tidegate.migrate.mosquitto_file import Line, read_lines
from tidegate.migrate.mosquitto_listeners import OPTIONS, PER_LISTENER, MosquittoListener
from tidegate.migrate.remarks import Kind, Remark

NO_LIMIT = 2_147_483_647
LARGEST_PACKET = 268_435_460
SMALLEST_PACKET = 256
LARGEST_NUMBER = 65_535  # of two bytes: ports, seconds of keep alive, topic aliases
# A limit of the payload becomes one of the packet, which has a topic and properties as well.
TOPIC_ALLOWANCE = 1_024
UNITS = {"h": 3_600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}
LEVELS = {
    "all": 0, "debug": 0, "information": 1, "notice": 1, "subscribe": 1, "unsubscribe": 1, "websockets": 1,
    "internal": 1, "warning": 2, "error": 3, "none": 3,
}  # fmt: skip
LEVEL_NAMES = ("debug", "info", "warning", "error")


@dataclass(slots=True)
class Conversion:
    """The settings as TOML, and what there is to say about them."""

    toml: str
    remarks: list[Remark]

    @property
    def is_complete(self) -> bool:
        return not any(remark.kind is Kind.LOST for remark in self.remarks)


def convert_mosquitto(path: Path) -> Conversion:
    """Reads a configuration file and all it names; MigrationError if Mosquitto would not start with it either."""
    converter = _Converter(path)
    for line in read_lines(path):
        converter.take(line)
    return converter.finish()


class _Converter:
    """Takes lines one by one, then puts together what depends on several."""

    def __init__(self, path: Path) -> None:
        self.document = Document(heading=[f"Made from {path} by `tidegate import-mosquitto`."])
        self.remarks: list[Remark] = []
        self._default = MosquittoListener()
        self._listeners = [self._default]
        self._global: dict[str, Line] = {}
        self._early: dict[str, Line] = {}  # lines before the first listener: about the default one
        self._guard: Line | None = None  # an option about everybody that has no counterpart
        self._log_level = -1
        self._handlers: dict[str, Callable[[Line], None]] = {
            "bind_address": self._on_bind_address,
            "global_max_connections": self._on_max_connections,
            "listener": self._on_listener,
            "log_dest": self._on_log_dest,
            "log_type": self._on_log_type,
            "max_inflight_messages": self._on_max_inflight,
            "max_keepalive": self._on_max_keepalive,
            "max_packet_size": self._on_max_packet_size,
            "max_queued_bytes": self._on_max_queued,
            "max_queued_messages": self._on_max_queued,
            "memory_limit": lambda line: self._put("limits.max_memory", line.as_int(), line),
            "message_size_limit": self._on_message_size_limit,
            "persistence": self._remember,
            "persistence_location": self._remember,
            "persistent_client_expiration": self._on_expiration,
            "per_listener_settings": self._remember,
            "port": self._on_port,
            "queue_qos0_messages": lambda line: self._put("features.queue_qos0", line.as_bool(), line),
            "retain_available": lambda line: self._put("features.retain_available", line.as_bool(), line),
            "sys_interval": lambda line: self._put("features.sys_interval", line.as_int(), line),
        }

    # --- lines

    def take(self, line: Line) -> None:
        option = line.option
        if len(self._listeners) == 1:
            self._early[option] = line
        if option in self._handlers:
            self._handlers[option](line)
        elif option in options.SWITCHES and not line.as_bool():
            pass  # its default, and ours
        elif option in OPTIONS:
            self._listeners[-1].options[option] = line
        elif option in PER_LISTENER:
            self._listeners[-1].options[option] = line
            self._global[option] = line
        elif option in options.NOT_NEEDED:
            self.remark(Kind.NOT_NEEDED, line, options.NOT_NEEDED[option])
        elif option in options.LOST:
            self.remark(Kind.LOST, line, options.LOST[option])
        elif option in options.GUARDS:
            self._on_guard(line)
        elif option.startswith(options.PLUGIN_OPTIONS):
            self.remark(Kind.LOST, line, "belongs to a plug-in")
        elif option in options.BRIDGE:
            hint = options.BRIDGE_HINT if option == "connection" else ""
            self.remark(Kind.LOST, line, "belongs to a bridge", hint)
        else:
            self._on_unknown(line)

    def remark(self, kind: Kind, line: Line, text: str, hint: str = "") -> None:
        self.remarks.append(Remark(kind=kind, text=text, place=line.place, option=line.option, hint=hint))

    def _put(self, key: str, value: bool | int | str, line: Line) -> None:
        self.document.put(key, value, line.place)

    def _remember(self, line: Line) -> None:
        self._global[line.option] = line

    def _on_unknown(self, line: Line) -> None:
        """Perhaps an option of a newer Mosquitto, and perhaps one that keeps somebody out."""
        known = [
            *self._handlers,
            *OPTIONS,
            *PER_LISTENER,
            *options.NOT_NEEDED,
            *options.LOST,
            *options.GUARDS,
        ]
        near = difflib.get_close_matches(line.option, [*known, *options.BRIDGE], 1)
        hint = f"did you mean {near[0]}?" if near else "set what it was for by hand"
        self._guard = line
        self.remark(Kind.LOST, line, "not known here; every listener stays on 127.0.0.1", hint)

    def _on_listener(self, line: Line) -> None:
        port, _, host = line.value.partition(" ")
        if not port.isdecimal() or int(port) > LARGEST_NUMBER:
            raise line.error(f"{port!r} is no port")
        self._listeners.append(MosquittoListener(port=int(port), host=host.strip(), line=line))

    def _on_port(self, line: Line) -> None:
        port = line.as_int()
        if port > LARGEST_NUMBER:
            raise line.error(f"{line.value!r} is no port")
        self._default.port, self._default.line = port, line

    def _on_bind_address(self, line: Line) -> None:
        self._default.host, self._default.line = line.value, line

    def _on_guard(self, line: Line) -> None:
        if line.option == "mount_point" and len(self._listeners) == 1:
            raise line.error("there is no listener above it", "Mosquitto refuses this, too")
        if line.option in options.LISTENER_GUARDS:
            self._listeners[-1].guard = line
            what = "the listener"
        else:
            self._guard = line
            what = "every listener"
        text = f"{what} stays on 127.0.0.1, so that nobody gets at more than before"
        self.remark(Kind.LOST, line, text, options.GUARDS[line.option])

    def _on_max_connections(self, line: Line) -> None:
        if line.as_int(minimum=-1) > 0:
            self._put("limits.max_connections", line.as_int(), line)

    def _on_max_inflight(self, line: Line) -> None:
        self._put("limits.max_inflight", min(line.as_int() or LARGEST_NUMBER, LARGEST_NUMBER), line)

    def _on_max_keepalive(self, line: Line) -> None:
        self._put("features.server_keep_alive", min(line.as_int(), LARGEST_NUMBER) % LARGEST_NUMBER, line)

    def _on_max_packet_size(self, line: Line) -> None:
        size = line.as_int() or LARGEST_PACKET
        if size < SMALLEST_PACKET:
            self.remark(Kind.DIFFERS, line, f"the least is {SMALLEST_PACKET}")
        self._put("limits.max_packet_size", min(max(size, SMALLEST_PACKET), LARGEST_PACKET), line)

    def _on_message_size_limit(self, line: Line) -> None:
        if not line.as_int() or self.document.get("limits.max_packet_size"):
            self.remark(Kind.NOT_NEEDED, line, "limits.max_packet_size bounds the packet as a whole")
            return
        size = min(line.as_int() + TOPIC_ALLOWANCE, LARGEST_PACKET)
        self._put("limits.max_packet_size", size, line)
        self.remark(
            Kind.DIFFERS,
            line,
            f"the limit is for the packet, {TOPIC_ALLOWANCE} bytes more; one over it is cut off",
        )

    def _on_max_queued(self, line: Line) -> None:
        count = line.as_int()
        key = f"limits.{line.option}"
        if count == 0 and line.option == "max_queued_bytes":
            self.remark(Kind.DIFFERS, line, "no queue is unlimited: the default stays", f"set {key}")
            return
        if line.option == "max_queued_bytes":
            count = max(count, 1_024)
        self._put(key, count or NO_LIMIT, line)
        self.remark(
            Kind.DIFFERS,
            line,
            "Mosquitto drops what does not fit, Tidegate lets the publisher wait",
            'set features.queue_full to "drop" for the former',
        )

    def _on_expiration(self, line: Line) -> None:
        found = re.fullmatch(r"(\d+)([hdwmy])", line.value)
        if found is None:
            raise line.error(f"{line.value!r} is no duration", "a number and one of h d w m y, such as 14d")
        seconds = min(int(found[1]) * UNITS[found[2]], 4_294_967_295)
        self._put("features.persistent_session_expiry", seconds, line)
        self._put("features.max_session_expiry", seconds, line)

    def _on_log_dest(self, line: Line) -> None:
        if line.value not in ("stderr", "stdout"):
            self.remark(Kind.NOT_NEEDED, line, "logs go to standard error; the service manager files them")

    def _on_log_type(self, line: Line) -> None:
        for name in line.value.split():
            if name not in LEVELS:
                raise line.error(f"{name!r} is no type of log line")
            level = LEVELS[name]
            self._log_level = level if self._log_level < 0 else min(self._log_level, level)
        self._put("log.level", LEVEL_NAMES[self._log_level], line)

    # --- what depends on several lines

    def finish(self) -> Conversion:
        self._open_default()
        listeners = [each for each in self._listeners if not each.is_default]
        is_local_only = not listeners
        if is_local_only:
            # [mosquitto.conf(5)] without any listener: the loopback address, and anonymous clients are let in.
            self._default.host = "127.0.0.1"
            listeners = [self._default]
        elif self._default.is_default:
            for line in self._default.options.values():
                if line.option in OPTIONS:
                    self.remark(Kind.NOT_NEEDED, line, "it is about the default listener, which is not used")
        self._persistence()
        self._accounts(listeners)
        for listener in listeners:
            listener.guard = listener.guard or self._guard
            anonymous = self._anonymous(listener, is_local_only=is_local_only)
            table = listener.convert(allow_anonymous=anonymous, remark=self.remark)
            # Listeners of one port that were all put on the loopback address are one.
            if listener.guard is None or not self._is_taken(table):
                self.document.listeners.append(table)
        self._common_options(listeners)
        if self.document.get("limits.max_packet_size") is None:
            self.remarks.append(
                Remark(
                    kind=Kind.DIFFERS,
                    text="Mosquitto takes packets of up to 256 MiB, Tidegate of 1 MiB unless told otherwise",
                    hint="set limits.max_packet_size if your messages are larger",
                )
            )
        # In the order of the file; what is about no line comes last.
        self.remarks.sort(key=lambda remark: (not remark.place, *_position(remark.place)))
        return Conversion(self.document.render(), self.remarks)

    def _open_default(self) -> None:
        """Mosquitto serves the default listener as well if something was said about it."""
        line = opening_line(self._early, is_per_listener=self._is_per_listener())
        if line is None or not self._default.is_default:
            return
        self._default.line = line
        others = [each for each in self._listeners if each is not self._default]
        if any(each.port == self._default.port for each in others):
            raise line.error(
                f"it opens port {self._default.port}, which another listener has",
                "Mosquitto would not start with this; put the line below the listener it is about",
            )
        if others:
            self.remark(
                Kind.DIFFERS,
                line,
                f"it stands before the first listener, so Mosquitto serves port {self._default.port} too, on every "
                "address; so does Tidegate",
                "put the line below the listener it is about if that was not meant",
            )

    def _is_taken(self, table: dict[str, Entry]) -> bool:
        def address(each: dict[str, Entry]) -> list[object]:
            return [each[name].value for name in ("path", "host", "port") if name in each]

        return any(address(each) == address(table) for each in self.document.listeners)

    def _persistence(self) -> None:
        line = self._global.get("persistence")
        if line is None or not line.as_bool():
            return
        place = self._global.get("persistence_location")
        folder = place.as_path() if place is not None else Path("tidegate-data")
        self.document.put("data", folder, (place or line).place)
        if place is None:
            self.remark(Kind.DIFFERS, line, "data is in the folder tidegate-data beside the settings")
        self.remark(
            Kind.DIFFERS,
            line,
            "what is in mosquitto.db stays there: sessions, queues and retained messages begin empty",
            "retained ones can be copied with a client; see docs/migrating.md",
        )

    def _is_per_listener(self) -> bool:
        line = self._global.get("per_listener_settings")
        return line is not None and line.as_bool()

    def _anonymous(self, listener: MosquittoListener, *, is_local_only: bool) -> Entry:
        found = listener.options if self._is_per_listener() else self._global
        line = listener.options.get("listener_allow_anonymous") or found.get("allow_anonymous")
        return Entry(is_local_only) if line is None else Entry(line.as_bool(), line.place)

    def _accounts(self, listeners: list[MosquittoListener]) -> None:
        passwords = self._one_file("password_file", listeners)
        rights = self._one_file("acl_file", listeners)
        identity = next((each for each in listeners if each.flag("use_identity_as_username")), None)
        if identity is not None:
            line = identity.options["use_identity_as_username"]
            self._put("accounts.certificate_identity", "cn", line)
            self._put("accounts.certificate_username", "ignore", line)
            self._check_certificates(line, listeners)
        if passwords is not None:
            self._check_passwords(passwords)
        users = self._check_rights(rights) if rights is not None else False
        has_proofs = passwords is not None or identity is not None
        if users and rights is not None and not has_proofs:
            self.remark(
                Kind.DIFFERS,
                rights,
                "rules of users apply to nobody: a user name without proof is not taken at its word",
                "set accounts.password_file",
            )
        is_local_only = listeners == [self._default] and self._default.is_default
        anonymous = [self._anonymous(each, is_local_only=is_local_only) for each in listeners]
        allowed = next((entry for entry in anonymous if entry.value), None)
        if has_proofs and allowed is not None:
            self.document.put("accounts.allow_anonymous", True, allowed.origin)

    def _check_certificates(self, line: Line, listeners: list[MosquittoListener]) -> None:
        """A certificate names the user everywhere or nowhere: where it did not, a password must still be asked for."""
        for each in listeners:
            if each.flag("require_certificate") and not each.flag("use_identity_as_username"):
                each.guard = each.guard or each.options["require_certificate"]
                self.remark(
                    Kind.LOST,
                    each.options["require_certificate"],
                    f"certificates name the user here, too ({line.place}); the listener stays on 127.0.0.1",
                    "run a second node for it, or let its clients log in by certificate",
                )

    def _one_file(self, option: str, listeners: list[MosquittoListener]) -> Line | None:
        """The file that everybody shares; listeners with another one stay on the loopback address."""
        key = {"password_file": "accounts.password_file", "acl_file": "accounts.rights_file"}[option]
        if not self._is_per_listener():
            line = self._global.get(option)
        else:
            line = next((each.options[option] for each in listeners if option in each.options), None)
            for each in listeners:
                own = each.options.get(option)
                if line is None or (own is not None and own.value == line.value):
                    continue
                each.guard = own or each.line or line
                self.remark(
                    Kind.LOST,
                    each.guard,
                    f"one {key.rpartition('.')[2]} is for all listeners; this one stays on 127.0.0.1",
                    "run a second node for listeners with other accounts or rights",
                )
        if line is not None:
            self.document.put(key, line.as_path(), line.place)
        return line

    def _check_passwords(self, line: Line) -> None:
        try:
            accounts = read_password_file(line.as_path()).accounts
        except AccountsError as error:
            self.remark(Kind.LOST, line, str(error), error.hint)
            return
        if any((account.password_hash or "").startswith(PREFIXES) for account in accounts.values()):
            self.remark(
                Kind.DIFFERS,
                line,
                "the passwords work; their hashes are weaker than ours",
                "`tidegate passwd FILE USER` writes a stronger one",
            )

    def _check_rights(self, line: Line) -> bool:
        """Whether there are rules for users; says what in the file will not do."""
        try:
            return bool(read_rights_file(line.as_path()).users)
        except AccountsError as error:
            self.remark(Kind.LOST, line, str(error), error.hint)
            return False

    def _common_options(self, listeners: list[MosquittoListener]) -> None:
        """Options of a listener that are the node's here: the strictest counts for all."""
        for option, key, most in (
            ("max_qos", "features.maximum_qos", 2),
            ("max_topic_alias", "limits.max_topic_alias", LARGEST_NUMBER),
        ):
            lines = [each.options[option] for each in listeners if option in each.options]
            if not lines:
                continue
            least = min(lines, key=Line.as_int)
            self._put(key, min(least.as_int(), most), least)
            if len({line.value for line in lines}) > 1 or len(lines) < len(listeners):
                self.remark(Kind.DIFFERS, least, "counts for all listeners, not for one")
        name = "allow_zero_length_clientid"
        sources = [each.options for each in listeners] if self._is_per_listener() else [self._global]
        lines = [source[name] for source in sources if name in source]
        if lines:
            least = min(lines, key=Line.as_bool)
            self._put("features.allow_zero_length_client_id", least.as_bool(), least)


def _position(place: str) -> tuple[str, int]:
    file, _, number = place.rpartition(":")
    return file, int(number or 0)
