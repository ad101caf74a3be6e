"""Would a TLS client accept this listener? Asked the only way that cannot be wrong: by shaking hands.

A server and a client end are joined in memory, and the client trusts exactly the listener's own certificate,
so that what is left to complain about is the certificate itself: its key, its dates, its purpose. No parser
of certificates is needed beyond OpenSSL's.
"""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.cli.checks import Finding, Outcome
from tidegate.settings import ListenerSettings

SOON_DAYS = 30
_DAY = 86_400.0
# More flights than any TLS handshake has; only there so that the loop is bounded.
_MAX_FLIGHTS = 10


def check_certificate(listener: ListenerSettings) -> Iterator[Finding]:
    """Findings about the certificate, key and client authorities of a TLS listener."""
    assert listener.certfile is not None
    assert listener.keyfile is not None
    files = [listener.certfile, listener.keyfile]
    if listener.client_ca is not None:
        files.append(listener.client_ca)
    unreadable = [finding for path in files for finding in _check_readable(path)]
    yield from unreadable
    if unreadable:
        return
    yield _check_pair(listener.certfile, listener.keyfile)
    if listener.client_ca is not None:
        yield _check_authorities(listener.client_ca)


def _check_readable(path: Path) -> Iterator[Finding]:
    try:
        path.read_bytes()
    except OSError as error:
        yield Finding(
            outcome=Outcome.FAIL,
            subject=str(path),
            observed=(error.strerror or str(error)).lower(),
            advice="name a file that this user can read",
        )


def _check_pair(certfile: Path, keyfile: Path) -> Finding:
    subject = str(certfile)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # A certificate that somebody else signed is a trust anchor only with this flag.
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        # An encrypted key would ask for its password on the terminal; a service has none, so it is a fault.
        server.load_cert_chain(certfile, keyfile, password=lambda: "")
        client.load_verify_locations(certfile)
    except (ssl.SSLError, ValueError, OSError) as error:
        return Finding(
            outcome=Outcome.FAIL,
            subject=subject,
            observed=_reason(error),
            advice=f"check that {keyfile} is its key, that both are PEM, and that the key has no password",
        )
    try:
        certificate = _shake_hands(client, server)
    except ssl.SSLError as error:
        observed = getattr(error, "verify_message", "") or _reason(error)
        return Finding(
            outcome=Outcome.FAIL, subject=subject, observed=observed, advice="issue a new certificate"
        )
    days = (ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()) / _DAY
    observed = f"valid until {certificate['notAfter']}"
    if days < SOON_DAYS:
        return Finding(
            outcome=Outcome.WARN,
            subject=subject,
            observed=f"{observed}, {days:.0f} days",
            advice="renew it soon",
        )
    return Finding(outcome=Outcome.OK, subject=subject, observed=observed)


def _check_authorities(path: Path) -> Finding:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        return Finding(
            outcome=Outcome.FAIL,
            subject=str(path),
            observed=_reason(error),
            advice="name a PEM file of certificates",
        )
    return Finding(outcome=Outcome.OK, subject=str(path), observed="readable")


def _shake_hands(client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> dict[str, Any]:
    """The server's certificate as the client saw it; raises ssl.SSLError if the client would refuse."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MAX_FLIGHTS):
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            pass
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            pass
    return dict(client.getpeercert() or {})


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or str(error)
    return str(reason).replace("_", " ").lower()
