"""Addresses as people write them, and the one value the rest of the room works with.

Accepted: `mqtt://host:port`, `mqtts://host:port`, `ws://host:port/path`, `wss://host:port/path`,
`unix:/path/to/socket`, the synonyms in `SYNONYMS`, and `host` or `host:port` alone, which mean `mqtt://`.
Credentials and queries are refused rather than ignored: a password that silently has no effect is worse
than an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tidegate.net.errors import AddressError

# IANA ports for MQTT; WebSocket clients use the ports of HTTP, as RFC 6455 section 3 says.
DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}

# Schemes other MQTT tools use for the same things.
SYNONYMS = {"tcp": "mqtt", "ssl": "mqtts", "tls": "mqtts", "mqtt+ssl": "mqtts"}

DEFAULT_WEBSOCKET_PATH = "/mqtt"

_HINT = "use mqtt://host:port, mqtts://host:port, ws://host:port/path, wss://host:port/path or unix:/path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to listen or to connect. For `unix`, `path` is the socket file; for WebSocket, the HTTP path."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False
    websocket: bool = False

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        return f"{self.scheme}://{join_host_port(self.host, self.port)}{self.path}"


def join_host_port(host: str, port: int) -> str:
    """`host:port` with the brackets an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def scheme_of(*, tls: bool, websocket: bool) -> str:
    """The URL scheme for a TCP endpoint with these two properties."""
    if websocket:
        return "wss" if tls else "ws"
    return "mqtts" if tls else "mqtt"


def parse_address(text: str) -> Endpoint:
    """Turn an address into an `Endpoint`; raises `AddressError` with a hint."""
    address = text.strip()
    if not address:
        raise AddressError(text, "it is empty", hint=_HINT)
    if address.startswith("unix:"):
        return _parse_unix(address)
    if "://" not in address:
        address = f"mqtt://{address}"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # Bad brackets or a port that is not a number from 0 to 65535.
        raise AddressError(text, str(error), hint=_HINT) from None
    scheme = SYNONYMS.get(parts.scheme, parts.scheme)
    if scheme not in DEFAULT_PORTS:
        raise AddressError(text, f"unknown scheme {parts.scheme!r}", hint=_HINT)
    if not host:
        raise AddressError(text, "the host is missing", hint=_HINT)
    if any(character.isspace() or not character.isprintable() for character in address):
        raise AddressError(text, "it holds a space or an unprintable character", hint=_HINT)
    if parts.username is not None or parts.password is not None:
        raise AddressError(
            text.replace(parts.netloc, parts.netloc.rpartition("@")[2]),
            "credentials do not belong in an address",
            hint="give the user name and the password as their own options",
        )
    if parts.fragment or "#" in address:
        raise AddressError(text, "a fragment (#…) has no meaning here", hint=_HINT)
    websocket = scheme in ("ws", "wss")
    path = parts.path
    if websocket:
        path = path or DEFAULT_WEBSOCKET_PATH
        if parts.query:
            path = f"{path}?{parts.query}"
    elif parts.query or path not in ("", "/"):
        raise AddressError(text, f"{scheme} addresses have no path", hint="use ws:// or wss:// for a path")
    else:
        path = ""
    return Endpoint(
        scheme=scheme,
        host=host,
        port=DEFAULT_PORTS[scheme] if port is None else port,
        path=path,
        tls=scheme in ("mqtts", "wss"),
        websocket=websocket,
    )


def _parse_unix(address: str) -> Endpoint:
    # unix:///run/x.sock is how URL-minded people write unix:/run/x.sock.
    path = address.removeprefix("unix:").removeprefix("//")
    if not path or path.endswith("/") or "\0" in path:
        raise AddressError(address, "the path of the socket is missing", hint="use unix:/path/to/socket")
    return Endpoint(scheme="unix", path=path)
