"""Everything a node can be told, as one tree of frozen dataclasses.

The broker's own bounds and features live in `broker/settings.py`; this file adds what surrounds a broker:
listeners, metrics, logs. Help and ranges sit in the field metadata, and the loader, `dump` and the reference
page read them from there, so a new key is one new field and nothing else.
"""

import dataclasses
import ipaddress
import typing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidegate.accounts.settings import AccountsSettings
from tidegate.broker.flow_settings import (
    Backoff,
    FlowSettings,
    LoadLimits,
    Priority,
    PriorityClass,
    SharedRule,
)
from tidegate.broker.settings import Features, Limits, setting
from tidegate.broker.store.settings import StoreSettings
from tidegate.cluster.settings import ClusterSettings, Replication, Role, parse_budgets
from tidegate.flow.priority import Classes, InvalidRule
from tidegate.flow.shared import Ordering
from tidegate.lake.settings import LakeSettings
from tidegate.mqtt.errors import Blame, TopicFilterInvalid
from tidegate.mqtt.topics import validate_topic_filter
from tidegate.policy.settings import PolicySettings
from tidegate.settings.errors import SettingsError

AUTO = "auto"
NO_SOCKET = "none"


class ListenerType(StrEnum):
    """How clients reach a listener."""

    TCP = "tcp"
    TLS = "tls"
    WS = "ws"
    WSS = "wss"
    UNIX = "unix"


class LogLevel(StrEnum):
    """The least important line that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks."""

    AUTO = "auto"  # human on a terminal, JSON lines otherwise
    HUMAN = "human"
    JSON = "json"


# 1883 and 8883 are registered for MQTT; the WebSocket ports are what most brokers use.
DEFAULT_PORTS = {
    ListenerType.TCP: 1883,
    ListenerType.TLS: 8883,
    ListenerType.WS: 8083,
    ListenerType.WSS: 8084,
    ListenerType.UNIX: 0,
}
DEFAULT_WEBSOCKET_PATH = "/mqtt"
BY_TYPE = -1


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach `host`. Unknown names count as not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One address where clients connect."""

    type: ListenerType = setting(ListenerType.TCP, "how clients connect")
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 or :: for every interface")
    port: int = setting(
        BY_TYPE,
        "port; 0 picks a free one; default 1883, tls 8883, ws 8083, wss 8084",
        minimum=0,
        maximum=65_535,
    )
    path: str = setting("", "unix: the socket file; ws and wss: the URL path, default /mqtt")
    certfile: Path | None = setting(None, "tls and wss: the server's certificate chain, PEM")
    keyfile: Path | None = setting(None, "tls and wss: the private key, PEM")
    client_ca: Path | None = setting(
        None, "tls and wss: authorities whose client certificates are accepted, PEM"
    )
    require_client_certificate: bool = setting(False, "tls and wss: refuse clients without a certificate")
    allow_anonymous: bool | None = setting(
        None,
        "let clients in without credentials; auto: only on loopback addresses and unix sockets, without a proxy",
    )
    max_connections: int = setting(
        0, "connections at once on this listener; 0: only the node's limit", minimum=0
    )
    origins: tuple[str, ...] = setting(
        (),
        'ws and wss: pages that browsers may connect from, "https://plant.example" say; "*": any; empty: only pages of '
        "the same address and port; clients that are no browsers are always let in",
    )
    proxy_protocol: bool = setting(
        False,
        "every connection begins with a PROXY header (version 1 or 2, before TLS) that gives the client's address; "
        "see docs/proxy.md",
    )
    proxy_from: tuple[str, ...] = setting(
        (), "addresses and networks of the proxies; empty: whoever can connect may claim any address"
    )

    def __post_init__(self) -> None:
        # Frozen, but the defaults of two fields depend on a third: filling them in here means that no reader
        # of a listener has to know the rule.
        if self.port == BY_TYPE:
            object.__setattr__(self, "port", DEFAULT_PORTS[self.type])
        if self.is_websocket and not self.path:
            object.__setattr__(self, "path", DEFAULT_WEBSOCKET_PATH)

    @property
    def is_tls(self) -> bool:
        """Whether the bytes on the wire are encrypted."""
        return self.type in (ListenerType.TLS, ListenerType.WSS)

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT travels inside WebSocket frames."""
        return self.type in (ListenerType.WS, ListenerType.WSS)

    @property
    def accepts_anonymous(self) -> bool:
        """`allow_anonymous` with its default worked out: safe unless somebody decided otherwise."""
        if self.allow_anonymous is not None:
            return self.allow_anonymous
        if self.proxy_protocol:
            return False  # the proxy stands on this machine, perhaps; its clients need not
        return self.type is ListenerType.UNIX or is_loopback(self.host)

    @property
    def address(self) -> str:
        """The listener as a URL, for messages."""
        if self.type is ListenerType.UNIX:
            return f"unix:{self.path}"
        scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(self.type, str(self.type))
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{self.path if self.is_websocket else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where Prometheus reads the node's counters."""

    host: str = setting("127.0.0.1", "address of the metrics page")
    port: int = setting(0, "port of the metrics page; 0: none", minimum=0, maximum=65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is written to standard error."""

    level: LogLevel = setting(LogLevel.INFO, "least important line that is written")
    format: LogFormat = setting(LogFormat.AUTO, "auto: human on a terminal, JSON lines otherwise")


def _default_listeners() -> tuple[ListenerSettings, ...]:
    return (ListenerSettings(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One node."""

    name: str = setting("tidegate", "name of the node in $SYS topics, logs and metrics")
    shutdown_timeout: float = setting(10.0, "seconds a graceful stop may take", minimum=0)
    data: Path | None = setting(
        None, "folder for sessions, queues and retained messages; without it they are in memory only"
    )
    operator_socket: str = setting(
        AUTO,
        "unix socket for the user who runs the node: all rights, and no limit keeps them out; auto: in the user's "
        "runtime folder, where `tidegate` finds it; none; or a path",
    )
    listeners: tuple[ListenerSettings, ...] = field(
        default_factory=_default_listeners, metadata={"help": "where clients connect"}
    )
    limits: Limits = field(default_factory=Limits)
    features: Features = field(default_factory=Features)
    backoff: Backoff = field(default_factory=Backoff)
    priority: Priority = field(default_factory=Priority)
    load: LoadLimits = field(default_factory=LoadLimits)
    classes: tuple[PriorityClass, ...] = field(
        default=(), metadata={"help": "traffic that an administrator puts before or behind the rest"}
    )
    shared: tuple[SharedRule, ...] = field(
        default=(), metadata={"help": "how single shared subscriptions pick their member"}
    )
    store: StoreSettings = field(default_factory=StoreSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    accounts: AccountsSettings = field(default_factory=AccountsSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def flow(self) -> FlowSettings:
        return FlowSettings(
            backoff=self.backoff,
            priority=self.priority,
            load=self.load,
            classes=self.classes,
            shared=self.shared,
        )


def item_type(annotation: Any) -> Any | None:
    """The class of the tables in a list of tables, such as [[listeners]]; None for anything else."""
    parts = typing.get_args(annotation)
    is_list = typing.get_origin(annotation) is tuple and dataclasses.is_dataclass(parts[0])
    return parts[0] if is_list else None


def check_classes(classes: tuple[PriorityClass, ...]) -> None:
    """Raises SettingsError for a class that could not mean what was intended."""
    for index, each in enumerate(classes):
        if each.limit and each.topic_filter:
            raise SettingsError(
                "a limit is for publishers, not for topics",
                key=f"classes.{index}.limit",
                value=each.limit,
                hint="give the class a user or a listener instead of the topic_filter",
            )
    try:
        Classes(each.rule() for each in classes)
    except InvalidRule as error:
        raise SettingsError(
            str(error), key=f"classes.{error.rule - 1}", value=None, hint="see docs/backoff.md, Classes"
        ) from None


def check_cluster(cluster: ClusterSettings, data: object = None) -> None:
    """Raises SettingsError for a role that cannot be played with what else is set."""
    try:
        list(parse_budgets(cluster.budgets))
    except ValueError as error:
        raise SettingsError(
            str(error), key="cluster.budgets", value=list(cluster.budgets), hint='for example ["alarms/#=0.5"]'
        ) from None
    if cluster.role is Role.SINGLE:
        return
    if not cluster.secret:
        raise SettingsError(
            f"a node with role {cluster.role} needs the secret of its cluster",
            key="cluster.secret",
            value="",
            hint="set the same long random text on every node, in the file or as TIDEGATE_CLUSTER__SECRET",
        )
    if cluster.replication is Replication.STANDBY and data is None:
        raise SettingsError(
            "a cluster with standby copies needs a data folder on every node",
            key="cluster.replication",
            value=cluster.replication.value,
            hint="name one with --data or data = ..., or leave replication at none",
        )
    if cluster.role is Role.EDGE and not cluster.heads:
        raise SettingsError(
            "an edge needs a head",
            key="cluster.heads",
            value=[],
            hint='name the link address of a head, for example ["127.0.0.1:1884"]',
        )


def check_shared(rules: tuple[SharedRule, ...]) -> None:
    """Raises SettingsError for a rule that would never do anything."""
    for index, rule in enumerate(rules):
        _check_shared_rule(f"shared.{index}", rule)


def _check_shared_rule(key: str, rule: SharedRule) -> None:
    def refuse(name: str, problem: str, hint: str) -> SettingsError:
        return SettingsError(problem, key=f"{key}.{name}", value=str(getattr(rule, name)), hint=hint)

    if rule.ordering is not Ordering.NONE and rule.policy != "earliest_finish":
        raise refuse(
            "ordering",
            f"the policy {rule.policy} knows no ordering",
            'leave it out, or use policy = "earliest_finish"',
        )
    if any(character in rule.group for character in "/+#"):
        raise refuse("group", "no group has such a name", "give the NAME alone, of $share/NAME/filter")
    if rule.topic_filter.startswith("$share/"):
        raise refuse(
            "topic_filter",
            "the filter of a shared subscription begins behind its group",
            "of $share/NAME/filter give NAME as group and the rest as topic_filter",
        )
    if rule.topic_filter:
        try:
            validate_topic_filter(rule.topic_filter, blame=Blame.LOCAL)
        except TopicFilterInvalid as error:
            raise refuse("topic_filter", str(error), error.hint) from None


def check_listeners(listeners: tuple[ListenerSettings, ...]) -> None:
    """Raises SettingsError for listeners whose fields, each valid alone, do not fit together."""
    if not listeners:
        raise SettingsError(
            "a node needs at least one listener",
            key="listeners",
            value=[],
            hint="leave it out for 127.0.0.1:1883",
        )
    seen: dict[object, int] = {}
    for index, listener in enumerate(listeners):
        _check_listener(f"listeners.{index}", listener)
        is_unix = listener.type is ListenerType.UNIX
        if listener.port == 0 and not is_unix:
            continue  # each gets a free port of its own
        other = seen.setdefault(listener.path if is_unix else (listener.host, listener.port), index)
        if other != index:
            raise SettingsError(
                f"listeners.{other} has the same address",
                key=f"listeners.{index}",
                value=listener.address,
                hint="give each listener a port of its own",
            )


def _check_listener(key: str, listener: ListenerSettings) -> None:
    def refuse(name: str, problem: str, hint: str) -> SettingsError:
        value = getattr(listener, name)
        shown = str(value) if isinstance(value, Path) else value
        return SettingsError(problem, key=f"{key}.{name}", value=shown, hint=hint)

    if listener.type is ListenerType.UNIX and not listener.path:
        raise refuse("path", "a unix listener needs the path of its socket", "for example /run/tidegate.sock")
    if listener.is_websocket and not listener.path.startswith("/"):
        raise refuse("path", "a URL path begins with /", f"for example {DEFAULT_WEBSOCKET_PATH}")
    if not listener.host and listener.type is not ListenerType.UNIX:
        raise refuse("host", "a listener needs an address", "127.0.0.1, or 0.0.0.0 for every interface")
    if listener.origins and not listener.is_websocket:
        raise refuse("origins", "only WebSocket listeners see an Origin", 'set type = "ws" or leave it out')
    if listener.proxy_from:
        if not listener.proxy_protocol:
            raise refuse(
                "proxy_from", "the listener expects no proxy", "set proxy_protocol = true or leave it out"
            )
        if listener.type is ListenerType.UNIX:
            raise refuse(
                "proxy_from",
                "peers of a unix socket have no address",
                "leave it out; the file's mode decides",
            )
        for network in listener.proxy_from:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise refuse("proxy_from", str(error), 'for example ["10.0.0.5", "10.1.0.0/16"]') from None
    if listener.is_tls:
        for name in ("certfile", "keyfile"):
            if getattr(listener, name) is None:
                raise refuse(name, f"a {listener.type} listener needs a {name}", "name a PEM file")
        if listener.require_client_certificate and listener.client_ca is None:
            raise refuse(
                "require_client_certificate",
                "there is no authority to check certificates against",
                "set client_ca",
            )
        return
    for name in ("certfile", "keyfile", "client_ca"):
        if getattr(listener, name) is not None:
            # Clear text on a listener that was meant to be encrypted must not start.
            raise refuse(
                name, f"a {listener.type} listener is not encrypted", 'set type = "tls" or leave it out'
            )
    if listener.require_client_certificate:
        raise refuse(
            "require_client_certificate", f"a {listener.type} listener is not encrypted", 'set type = "tls"'
        )
