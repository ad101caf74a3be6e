"""An address where clients connect, as the broker sees it: how to open it, and who may come in by it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.net.listen import DEFAULT_UNIX_MODE
from tidegate.net.proxy import ProxyOptions
from tidegate.net.websocket import WebSocketOptions

if TYPE_CHECKING:
    from tidegate.broker.hooks import Authenticator
    from tidegate.broker.settings import Limits

OPERATOR_MODE = 0o600
LINK_PACKET = 4_194_304  # bytes that every node takes from another: parts of what they tell each other fit


@dataclass(slots=True, kw_only=True)
class Listener:
    """`host` None: every interface; port 0: any free one. `connections` is the present number.

    `is_link`: for other nodes of the cluster, not for clients. `is_operator`: for who runs this process; nobody asks
    for their rights, and no limit keeps them out. `authenticator` stands before the broker's own.
    """

    name: str = ""
    host: str | None = "127.0.0.1"
    port: int = 1883
    unix_path: Path | None = None
    unix_mode: int = DEFAULT_UNIX_MODE
    tls: ssl.SSLContext | None = None
    websocket: WebSocketOptions | None = None
    proxy: ProxyOptions | None = None
    allow_anonymous: bool = True
    max_connections: int = 0
    connections: int = 0
    is_link: bool = False
    is_operator: bool = False
    authenticator: Authenticator | None = None

    @property
    def takes_orders(self) -> bool:
        """Whether clients may give orders where no rights are set: the system let in users of this machine only."""
        return self.unix_path is not None and self.proxy is None and self.websocket is None


def operator_listener(path: Path) -> Listener:
    """For the user of this process, and for root."""
    return Listener(name=f"unix:{path}", unix_path=path, unix_mode=OPERATOR_MODE, is_operator=True)


def link_packet(limits: Limits) -> int:
    """Bytes of the largest packet that is taken from another node; a message may travel in Base64."""
    return max(2 * limits.max_packet_size + 65_536, LINK_PACKET)
