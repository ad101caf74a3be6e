"""Server Reference: where a server sends its clients (MQTT 5 section 4.11), and whether to go there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.client.errors import ClientError, ConnectRefused, Refused, ServerDisconnected
from tidegate.mqtt.codes import ReasonCode
from tidegate.net.addresses import DEFAULT_PORTS, Endpoint, parse_address
from tidegate.net.errors import AddressError

# After this long on a server the way there is forgotten: being moved once an hour is no loop.
SETTLED_SECONDS = 10.0


class TooManyRedirects(ClientError):
    """Servers sent the client on and on; `path` has the addresses in order."""

    def __init__(self, path: list[str]) -> None:
        super().__init__(
            f"servers sent the client in a circle: {' → '.join(path)}",
            hint="check the server references of these servers, or raise max_redirects",
        )
        self.path = path


class Whereabouts:
    """Which server to connect to: one of those we were given, or where we were sent from there, hop by hop."""

    def __init__(self, home: Endpoint, max_redirects: int, others: Sequence[Endpoint] = ()) -> None:
        self._homes = [home, *others]
        self._max_redirects = max_redirects
        self._path: list[str] = []
        self.current = home

    def follow(self, error: Exception | None) -> bool:
        """Whether `error` sends us to another server, which is then the current one.

        Raises `TooManyRedirects`, and is at home again.
        """
        target = redirection(error, self.current)
        if target is None or not self._max_redirects:
            return False
        self._path.append(str(self.current))
        if len(self._path) > self._max_redirects:
            path = [*self._path, str(target)]
            self.go_home()
            raise TooManyRedirects(path)
        self.current = target
        if isinstance(error, Refused | ServerDisconnected) and error.reason_code == ReasonCode.SERVER_MOVED:
            self._homes[0] = target
        return True

    def go_home(self) -> None:
        """Where we are nobody answers, or we were sent there for that time only (0x9C): ask the next that we know."""
        if self.current == self._homes[0]:
            self._homes.append(self._homes.pop(0))
        self.current = self._homes[0]
        self._path.clear()

    def on_lost(self, lived: float) -> None:
        """A connection ended after `lived` seconds; one that lasted was no part of a circle."""
        if lived > SETTLED_SECONDS:
            self._path.clear()


def redirection(error: Exception | None, current: Endpoint) -> Endpoint | None:
    """Where `error` sends the client, or None if nowhere it would go.

    A reference is `host`, `host:port`, or an address with a scheme; of a list, the first that can be read counts.
    What it leaves out stays as it is: scheme, path and, with the scheme, TLS. A client that was told to use TLS does
    not follow to a place without.
    """
    if not isinstance(error, ConnectRefused | ServerDisconnected) or not _sends_away(error.reason_code):
        return None
    return reachable(error.server_reference or "", current)


def reachable(references: str, current: Endpoint) -> Endpoint | None:
    """The first of these places that can be read and that we would go to."""
    for reference in references.replace(",", " ").split():
        endpoint = _read(reference, current)
        if endpoint is not None and (endpoint.tls or not current.tls):
            return endpoint
    return None


def _sends_away(reason_code: int) -> bool:
    return reason_code in (ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED)


def _read(reference: str, current: Endpoint) -> Endpoint | None:
    try:
        endpoint = parse_address(reference)
    except AddressError:
        return None
    if "://" in reference or endpoint.scheme == "unix":
        return endpoint
    if current.scheme == "unix":
        return endpoint
    has_port = reference.rpartition("]")[2].count(":") == 1
    port = endpoint.port if has_port else DEFAULT_PORTS[current.scheme]
    return replace(current, host=endpoint.host, port=port)
