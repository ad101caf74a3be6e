"""Message formats, declared by the user: what a type of device is called, can be told, and looks like on the wire.

Nothing of a device is wired in. A `DeviceType` says which identifiers are its devices', which methods it has with which
fields, on which topics its gateways listen and speak, and what the keys of their JSON objects are called. Electronic
shelf labels (`tidegate.rpc.labels`) are the example that is shipped; `tidegate.rpc.declared` reads others from TOML.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any, Literal

from tidegate.rpc.errors import Refusal, SchemaError
from tidegate.rpc.outcome import Reason


class Kind(StrEnum):
    """Types of field values. On the wire they are JSON; bytes are base64."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    BYTES = "bytes"


_PYTHON: dict[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.BOOLEAN: (bool,),
    Kind.BYTES: (bytes, bytearray, memoryview),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One value a method takes. `max_size` counts characters of text and bytes of bytes."""

    name: str
    kind: Kind = Kind.TEXT
    is_required: bool = False
    max_size: int = 1024
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def encode(self, value: Any) -> Any:
        """The value as JSON has it; raises `Refusal`."""
        fits = isinstance(value, _PYTHON[self.kind])
        if not fits or (isinstance(value, bool) and self.kind is not Kind.BOOLEAN):
            raise Refusal(Reason.MALFORMED, f"{self.name} is {type(value).__name__}, not {self.kind}")
        if self.kind in (Kind.TEXT, Kind.BYTES) and len(value) > self.max_size:
            raise Refusal(
                Reason.OVERSIZED, f"{self.name} has a size of {len(value)}, at most {self.max_size}"
            )
        if self.kind is Kind.NUMBER and isinstance(value, float) and not isfinite(value):
            raise Refusal(Reason.MALFORMED, f"{self.name} is {value}, which JSON has not")
        if self.choices and value not in self.choices:
            raise Refusal(Reason.MALFORMED, f"{self.name} is {value!r}, not one of {', '.join(self.choices)}")
        if self.minimum is not None and value < self.minimum:
            raise Refusal(Reason.MALFORMED, f"{self.name} is {value}, at least {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise Refusal(Reason.MALFORMED, f"{self.name} is {value}, at most {self.maximum:g}")
        return base64.b64encode(value).decode() if self.kind is Kind.BYTES else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What a device can be told. `code` stands for it on the wire; with `takes_any`, text fields of any name, too."""

    name: str
    code: int | str
    fields: tuple[Field, ...] = ()
    takes_any: bool = False

    def encode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Fields as JSON has them; raises `Refusal`."""
        known = {each.name: each for each in self.fields}
        for each in self.fields:
            if each.is_required and each.name not in values:
                raise Refusal(Reason.MALFORMED, f"{self.name} needs {each.name}")
        encoded = {}
        for name, value in values.items():
            declared = known.get(name)
            if declared is None:
                if not self.takes_any:
                    allowed = ", ".join(known) or "no fields"
                    raise Refusal(Reason.MALFORMED, f"{self.name} has no field {name!r}; it takes {allowed}")
                declared = Field(name=name)
            encoded[name] = declared.encode(value)
        return encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the keys of a gateway's JSON objects are called; an empty name leaves that part out."""

    device: str = "deviceMac"
    method: str = "type"
    fields: str = "fields"
    id: str = "id"
    key: str = "key"
    token: str = "token"
    deadline: str = "deadline"
    ack: str = "ack"
    reason: str = "reason"
    data: str = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Where gateways listen and speak; `{gateway}` stands for one, as a level of its own."""

    action: str = "/gw/{gateway}/action"
    response: str = "/gw/{gateway}/response"
    status: str = "/gw/{gateway}/status"
    beacon: str = "/gw/{gateway}/beacon"

    def __post_init__(self) -> None:
        for topic in (self.action, self.response, self.status, self.beacon):
            if topic.split("/").count("{gateway}") != 1 or "+" in topic or "#" in topic:
                raise SchemaError(f"topic {topic!r}", hint="it needs one level {gateway} and no wildcard")

    def gateway(self, template: str, topic: str) -> str:
        """Whose topic it is, made from this template."""
        return topic.split("/")[template.split("/").index("{gateway}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """A kind of device and its gateways.

    - `pattern`: identifiers of these devices, a regular expression for the whole of one.
    - `can_echo`: whether replies repeat the request's id. If not, calls to one device are made one after another,
      under a lease, and a reply is matched by its device alone (hazard 1).
    - `bundle`: how many requests one message to a gateway may hold, as a JSON array; 1 sends plain objects.
    - `max_size`: bytes of one request on the wire.
    - `advertises_every`: seconds between two beacons of a device, which is what ages routes.
    """

    name: str
    pattern: str
    methods: tuple[Method, ...]
    names: Names = field(default_factory=Names)
    topics: Topics = field(default_factory=Topics)
    can_echo: bool = True
    bundle: int = 64
    max_size: int = 65_536
    advertises_every: float = 2.0

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise SchemaError(f"pattern {self.pattern!r} of {self.name}: {error}") from None
        codes = [method.code for method in self.methods]
        if not codes or len(set(codes)) < len(codes):
            raise SchemaError(
                f"{self.name} has no methods, or two with one code", hint="give each a code of its own"
            )
        if not 1 <= self.bundle <= 10_000 or self.max_size < 1:
            raise SchemaError(
                f"{self.name}: bundle {self.bundle}, max_size {self.max_size}", hint="both from 1"
            )

    def owns(self, device: str) -> bool:
        return re.fullmatch(self.pattern, device) is not None

    def method(self, name: str) -> Method:
        for method in self.methods:
            if method.name == name:
                return method
        known = ", ".join(method.name for method in self.methods)
        raise Refusal(Reason.UNKNOWN_METHOD, f"{self.name} has no method {name!r}; it has {known}")

    def encode(self, method: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a request as JSON has them, checked; raises `Refusal`."""
        fields = self.method(method).encode(values)
        # The envelope around them is small and of our making.
        if len(json.dumps(fields)) > self.max_size:
            raise Refusal(Reason.OVERSIZED, f"a request for {self.name} has at most {self.max_size} bytes")
        return fields

    def code(self, method: str) -> int | str:
        return self.method(method).code


class Types:
    """All types a program knows, by name and by identifier of a device."""

    def __init__(self, types: tuple[DeviceType, ...]) -> None:
        if not types:
            raise SchemaError("no device type was declared", hint="give at least one")
        self.all = types
        self._by_name = {each.name: each for each in types}
        self._patterns = [(re.compile(each.pattern), each) for each in types]
        for response, kinds in self.by_topic("response").items():
            if len({each.names for each in kinds}) > 1:
                names = ", ".join(each.name for each in kinds)
                raise SchemaError(
                    f"{names} answer on {response!r} in different words",
                    hint="give types that share topics the same names, or each its own topics",
                )

    def named(self, name: str) -> DeviceType:
        try:
            return self._by_name[name]
        except KeyError:
            raise Refusal(Reason.UNKNOWN_DEVICE, f"no device type {name!r} was declared") from None

    def of(self, device: str) -> DeviceType:
        """The first type whose pattern fits; raises `Refusal`."""
        for pattern, each in self._patterns:
            if pattern.fullmatch(device):
                return each
        raise Refusal(Reason.UNKNOWN_DEVICE, f"no declared type has a device {device!r}")

    def by_topic(self, which: Literal["response", "status", "beacon"]) -> dict[str, tuple[DeviceType, ...]]:
        """One of the topics of all types, each once, with the types that share it."""
        found: dict[str, tuple[DeviceType, ...]] = {}
        for each in self.all:
            topic = getattr(each.topics, which)
            found[topic] = (*found.get(topic, ()), each)
        return found
