"""Options of `format("mqtt")`: strings in, one checked and picklable value out.

Spark hands options over with keys in lower case, and everything as text. One table says what there is, for whom, and
how it is read, so that an unknown name is refused with the nearest known one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tidegate.client import Carrier, ClientOptions, ReportOptions
from tidegate.errors import TidegateError
from tidegate.mqtt.topics import validate_topic_filter, validate_topic_name
from tidegate.net.addresses import Endpoint, parse_address
from tidegate.net.tls import MQTT_ALPN, client_context
from tidegate.spark.errors import OptionError

T = TypeVar("T")

PAYLOADS = ("raw", "json", "arrow")
MODES = ("permissive", "dropmalformed", "failfast")
VERSIONS = {"5": 5, "5.0": 5, "4": 4, "3.1.1": 4}
BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
OF_SPARK = ("path", "checkpointlocation", "queryname")  # its own, handed over with ours
WEEK = 7 * 24 * 3600


def _option(
    name: str,
    read: Callable[[str], Any],
    default: Any = None,
    *,
    who: str = "source sink",
    secret: bool = False,
) -> Any:
    metadata = {"name": name, "read": read, "who": who}
    return field(default=default, repr=not secret, metadata=metadata)


def _text(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    return value


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("use true or false")
    return value.lower() == "true"


def _number(lowest: float, highest: float, kind: Callable[[str], T]) -> Callable[[str], T]:
    def read(value: str) -> T:
        try:
            number = kind(value)
        except ValueError:
            raise ValueError(f"use a number from {lowest:g} to {highest:g}") from None
        if not lowest <= number <= highest:  # type: ignore[operator]
            raise ValueError(f"use a number from {lowest:g} to {highest:g}")
        return number

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.lower() not in names:
            raise ValueError(f"use one of {', '.join(names)}")
        return value.lower()

    return read


def _version(value: str) -> int:
    if value not in VERSIONS:
        raise ValueError("use 5 or 3.1.1")
    return VERSIONS[value]


def _size(value: str) -> int:
    text = value.strip().lower().removesuffix("b")
    unit = text[-1:] if text[-1:].isalpha() else ""
    number = text.removesuffix(unit)
    if unit not in BYTES or not number.isdigit() or not int(number):
        raise ValueError("use a number of bytes, or one with k, m or g")
    return int(number) * BYTES[unit]


def _filters(value: str) -> tuple[str, ...]:
    """Several filters with commas between them, or a JSON list for names that have commas in them."""
    if value.lstrip().startswith("["):
        try:
            given = json.loads(value)
        except ValueError:
            raise ValueError('use "a/#,b/+" or a JSON list of texts') from None
    else:
        given = [part.strip() for part in value.split(",")]
    if not given or not all(isinstance(each, str) and each for each in given):
        raise ValueError('use "a/#,b/+" or a JSON list of texts')
    for each in given:
        validate_topic_filter(each)
        if each.startswith("$share/"):
            raise ValueError('give the group as option "group", the filter without $share/')
    return tuple(dict.fromkeys(given))


def _topic(value: str) -> str:
    validate_topic_name(value)
    return value


def _url(value: str) -> str:
    parse_address(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions:
    """Every option, as its own type. Times in seconds, sizes in bytes. docs/spark.md explains them."""

    url: str = _option("url", _url)
    username: str | None = _option("username", _text)
    password: str | None = _option("password", str, secret=True)
    password_file: str | None = _option("passwordFile", _text)
    ca_file: str | None = _option("caFile", _text)
    cert_file: str | None = _option("certFile", _text)
    key_file: str | None = _option("keyFile", _text)
    insecure: bool = _option("insecure", _flag, False)
    mqtt_version: int = _option("mqttVersion", _version, 5)
    keep_alive: int = _option("keepAlive", _number(0, 65_535, int), 60)
    connect_timeout: float = _option("connectTimeout", _number(0.1, 3600, float), 30.0)
    qos: int = _option("qos", _number(0, 2, int), 1)
    payload: str = _option("payload", _one_of(*PAYLOADS), "raw")

    client_id: str = _option("clientId", _text, "", who="source")  # tasks of a sink run side by side
    topics: tuple[str, ...] = _option("topics", _filters, (), who="source")
    group: str | None = _option("group", _text, who="source")
    spool: str | None = _option("spool", _text, who="source")
    session_expiry: int = _option("sessionExpiry", _number(1, 0xFFFF_FFFF, int), WEEK, who="source")
    receive_maximum: int = _option("receiveMaximum", _number(1, 65_535, int), 20_000, who="source")
    reports: str = _option("reports", _one_of(*Carrier), "auto", who="source")
    mode: str = _option("mode", _one_of(*MODES), "permissive", who="source")
    max_rows_per_trigger: int | None = _option("maxRowsPerTrigger", _number(1, 1 << 62, int), who="source")
    partitions: int = _option("partitions", _number(1, 10_000, int), 4, who="source")
    rows_per_partition: int = _option("minRowsPerPartition", _number(1, 1 << 40, int), 5_000, who="source")
    max_spool_bytes: int = _option("maxSpoolBytes", _size, 1 << 30, who="source")
    segment_rows: int = _option("segmentRows", _number(1, 10_000_000, int), 50_000, who="source")
    segment_seconds: float = _option("segmentSeconds", _number(0.001, 3600, float), 0.1, who="source")
    max_messages: int | None = _option("maxMessages", _number(1, 1 << 62, int), who="source")
    idle_timeout: float = _option("idleTimeout", _number(0.01, 86_400, float), 2.0, who="source")

    topic: str | None = _option("topic", _topic, who="sink")
    retain: bool = _option("retain", _flag, False, who="sink")
    rows_per_message: int = _option("rowsPerMessage", _number(1, 10_000_000, int), 1_000, who="sink")
    max_in_flight: int = _option("maxInFlight", _number(1, 65_535, int), 1_000, who="sink")
    timeout: float = _option("timeout", _number(0.1, 86_400, float), 60.0, who="sink")

    @property
    def endpoint(self) -> Endpoint:
        return parse_address(self.url)

    @property
    def filters(self) -> tuple[str, ...]:
        """As they are subscribed to."""
        return (
            self.topics
            if self.group is None
            else tuple(f"$share/{self.group}/{each}" for each in self.topics)
        )

    def client_options(self, **changes: Any) -> ClientOptions:
        """What both directions have in common; reads the files that are named."""
        password = self.password
        if self.password_file is not None:
            try:
                password = Path(self.password_file).read_text(encoding="utf-8").removesuffix("\n")
            except OSError as error:
                raise OptionError(
                    f"passwordFile {self.password_file}: {error.strerror}",
                    hint="it is read where the code runs, on executors too",
                ) from None
            except UnicodeDecodeError:
                raise OptionError(
                    f"passwordFile {self.password_file} is not text", hint="a password in UTF-8, on one line"
                ) from None
        endpoint = self.endpoint
        context = None
        if endpoint.tls:
            context = client_context(
                self.ca_file,
                self.cert_file,
                self.key_file,
                insecure=self.insecure,
                alpn=("http/1.1",) if endpoint.websocket else MQTT_ALPN,
            )
        values: dict[str, Any] = {
            "protocol_version": self.mqtt_version,
            "username": self.username,
            "password": password,
            "keep_alive": self.keep_alive,
            "connect_timeout": self.connect_timeout,
            "client_id": self.client_id,
            "ssl": context,
            "reports": ReportOptions(carrier=self.reports if self.group else Carrier.OFF, manual=True),
        }
        return ClientOptions(**{**values, **changes})


def read_options(given: Mapping[str, str], who: str) -> MqttOptions:
    """The options of the "source" or the "sink"; raises `OptionError`."""
    known = {each.metadata["name"].lower(): each for each in fields(MqttOptions)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key.lower() in OF_SPARK:
            continue
        each = known.get(key.lower())
        if each is None:
            names = [one.metadata["name"] for one in known.values() if who in one.metadata["who"]]
            close = difflib.get_close_matches(key.lower(), [name.lower() for name in names], n=1)
            hint = (
                f"did you mean {known[close[0]].metadata['name']}?"
                if close
                else f"there are {', '.join(names)}"
            )
            raise OptionError(f"option {key} is not known", hint=hint)
        name = each.metadata["name"]
        if who not in each.metadata["who"]:
            raise OptionError(f"option {name} is for the {each.metadata['who']} only", hint="leave it out")
        try:
            values[each.name] = each.metadata["read"](value)
        except (ValueError, TidegateError) as error:
            shown = "…" if not each.repr else repr(value)
            raise OptionError(
                f"option {name} is {shown}", hint=getattr(error, "hint", "") or str(error)
            ) from None
    if "url" not in values:
        raise OptionError(
            "option url is missing", hint='say where the broker is: .option("url", "mqtt://localhost")'
        )
    options = MqttOptions(**values)
    if who == "source" and not options.topics:
        raise OptionError("option topics is missing", hint='say what to read: .option("topics", "sensors/#")')
    if options.group is not None and set(options.group) & set("/+#"):
        raise OptionError(f"option group is {options.group!r}", hint="a name without / + and #")
    if options.password is not None and options.password_file is not None:
        raise OptionError("both password and passwordFile are given", hint="give one of them")
    return options
