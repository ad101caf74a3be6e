"""How the parts of one backbone find each other: one frozen value, the same for all of them."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from tidegate.client import Client, ClientOptions
from tidegate.rpc.errors import RpcError

ROOT: Final = "tide/rpc"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


class BackendName(StrEnum):
    """What queues and return addresses are made of."""

    MQTT = "mqtt"
    """Shared subscriptions of the broker, and return addresses in the correlation: nothing else is needed."""
    RABBITMQ_REDIS = "rabbitmq+redis"
    """The thesis's servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`url` is the MQTT broker of the gateways, with both backends.

    - `namespace`: several backbones on one broker do not see each other.
    - `secret`: signs correlations; the same for callers and back routers.
    - `default_gateway`: for devices that have no route, as in the thesis's experiments; empty: refuse them.
    - `window`: unanswered requests one forward router may have at one gateway.
    - `session`: seconds the broker keeps what it owes to a part that vanished.
    - `queue_type`: of RabbitMQ queues for tasks: "quorum" or "classic" (both are durable).
    - `mqtt`: further options of every MQTT connection: user name, password, TLS.
    """

    url: str = "mqtt://localhost"
    backend: BackendName | str = BackendName.MQTT
    amqp: str = "amqp://guest:guest@localhost/"
    redis: str = "redis://localhost"
    namespace: str = "main"
    secret: bytes = field(default=b"", repr=False)
    default_gateway: str = ""
    window: int = 1000
    session: int = 300
    queue_type: str = "quorum"
    mqtt: ClientOptions = field(default_factory=ClientOptions, repr=False)

    def __post_init__(self) -> None:
        if self.backend not in list(BackendName):
            raise RpcError(f"backend {self.backend!r}", hint=f"use one of {', '.join(BackendName)}")
        check_name("namespace", self.namespace)
        if self.window < 1 or self.session < 0:
            raise RpcError(
                f"window {self.window}, session {self.session}", hint="window from 1, session from 0"
            )
        if self.queue_type not in ("quorum", "classic"):
            raise RpcError(f"queue type {self.queue_type!r}", hint="use quorum or classic")

    @property
    def root(self) -> str:
        """All topics of this backbone begin with it, but those of gateways."""
        return f"{ROOT}/{self.namespace}"

    def client(self, client_id: str, **changes: Any) -> Client:
        """An MQTT client that comes back quickly and finds its session again; a new process begins a new one, since
        what was meant for the old process would come before anybody has subscribed to it."""
        settings: dict[str, Any] = {
            "client_id": client_id,
            "session_expiry_interval": self.session,
            "reconnect": True,
            "reconnect_min_delay": 0.1,
            "reconnect_max_delay": 2.0,
            "send_queue_size": 10_000,
            "receive_queue_size": 10_000,
            "receive_maximum": 10_000,
        }
        return Client(self.url, replace(self.mqtt, **(settings | changes)))


def check_name(what: str, name: str) -> str:
    """Names become levels of topics and parts of correlations; raises `RpcError`."""
    if not _NAME.fullmatch(name):
        raise RpcError(f"{what} {name!r}", hint="use up to 32 letters, digits, - and _")
    return name


def new_name(prefix: str) -> str:
    """A name nobody else has."""
    return f"{prefix}-{secrets.token_hex(4)}"
