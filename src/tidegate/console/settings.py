"""What can be set about a console, and the rule that decides whether it may be seen from elsewhere."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from tidegate.console.errors import ConsoleError
from tidegate.net.tls import server_context

PORT = 1888


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Where the page is served, to whom, and which folders it may read.

    `names` are host names by which browsers may ask for it, beside addresses and the machine's own; `operators` users
    who may act, as may those whom `rights_file` lets write `$tide/control/#`.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    certfile: Path | None = None
    keyfile: Path | None = None
    password_file: Path | None = None
    rights_file: Path | None = None
    operators: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    read_only: bool = False
    policy: Path | None = None
    lake: str = ""
    reports: tuple[Path, ...] = ()
    namespace: str = "main"
    spaces: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def is_tls(self) -> bool:
        return self.certfile is not None

    def check(self) -> None:
        """Raises ConsoleError for what would show the node to strangers, or let nobody in.

        A certificate that cannot be used is a TLSConfigError.
        """
        if (self.certfile is None) != (self.keyfile is None):
            raise ConsoleError("a certificate and its key belong together", "give --http-cert and --http-key")
        if not self.is_loopback and self.password_file is None:
            raise ConsoleError(
                f"{self.host} can be reached from elsewhere, and there are no accounts",
                "give --accounts, a file as `tidegate passwd` writes it; or leave out --http-host",
            )
        if not self.is_loopback and not self.is_tls:
            raise ConsoleError(
                f"{self.host} can be reached from elsewhere, and passwords would be sent in the clear",
                "give --http-cert and --http-key; or leave out --http-host, and use a tunnel",
            )
        if self.operators and self.password_file is None:
            raise ConsoleError("operators need accounts", "give --accounts")
        if self.certfile is not None:
            server_context(self.certfile, self.keyfile)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; a name other than localhost may be anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
