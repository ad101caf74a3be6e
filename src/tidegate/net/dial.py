"""Open a connection to an endpoint of any kind, within a deadline, or say why not."""

from __future__ import annotations

import asyncio
import socket
import ssl as ssl_module
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from tidegate.net.addresses import Endpoint
from tidegate.net.errors import DialError
from tidegate.net.tls import MQTT_ALPN, client_context
from tidegate.net.websocket_client import open_websocket

P = TypeVar("P", bound=asyncio.Protocol)


async def dial(
    endpoint: Endpoint,
    protocol_factory: Callable[[], P],
    *,
    ssl: ssl_module.SSLContext | None = None,
    timeout: float,
    headers: Mapping[str, str] | None = None,
) -> tuple[asyncio.Transport, P]:
    """Connect to `endpoint` and return the transport and the protocol made by the factory.

    `timeout` covers everything: name, TCP, TLS and upgrade. An endpoint with TLS and no `ssl` trusts the
    system's authorities. `headers` go into the WebSocket upgrade. Raises `DialError` (`timed_out` set when
    time ran out), of which `WebSocketRefused` is one kind.
    """
    loop = asyncio.get_running_loop()
    context: ssl_module.SSLContext | None = None
    if endpoint.tls:
        alpn = ("http/1.1",) if endpoint.websocket else MQTT_ALPN
        context = ssl if ssl is not None else client_context(alpn=alpn)
    try:
        async with asyncio.timeout(timeout):
            transport: asyncio.Transport
            if endpoint.websocket:
                transport, inner = await open_websocket(loop, endpoint, protocol_factory, context, headers)
                return transport, cast(P, inner)
            if endpoint.scheme == "unix":
                transport, protocol = await loop.create_unix_connection(protocol_factory, endpoint.path)
            else:
                transport, protocol = await loop.create_connection(
                    protocol_factory, endpoint.host, endpoint.port, ssl=context
                )
            return transport, protocol
    except TimeoutError as error:
        raise DialError(
            str(endpoint),
            f"no answer within {timeout:g} s",
            timed_out=True,
            hint="check the address, and that no firewall drops the packets",
        ) from error
    except OSError as error:
        raise _dial_error(endpoint, error) from error


def _dial_error(endpoint: Endpoint, error: OSError) -> DialError:
    address = str(endpoint)
    if isinstance(error, ssl_module.SSLCertVerificationError):
        return DialError(
            address,
            f"its certificate is not trusted ({error.verify_message})",
            hint="trust its authority (--cafile, or client_context(ca_file=…)) and use a host name it was issued for",
        )
    if isinstance(error, ssl_module.SSLError):
        return DialError(
            address,
            f"the TLS handshake failed ({error.reason or error})",
            hint="check that this port speaks TLS and whether it asks for a client certificate",
        )
    if isinstance(error, socket.gaierror):
        return DialError(address, "the host name does not resolve", hint="check the spelling of the host")
    if isinstance(error, ConnectionRefusedError):
        return DialError(address, "nobody listens there", hint="start the broker or correct the port")
    if isinstance(error, FileNotFoundError):
        return DialError(address, "there is no such socket", hint="start the broker or correct the path")
    return DialError(address, error.strerror or str(error) or type(error).__name__, hint="check the address")
