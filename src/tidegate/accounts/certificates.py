"""Who a client is by its certificate. TLS has verified it by then; here it is only read."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from tidegate.accounts.password_file import check_user_name
from tidegate.accounts.settings import CertificateIdentity, CertificateUsername
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.mqtt.codes import ReasonCode

# Addresses name machines, not users, and registered IDs are nothing one would write in a rights file.
_NAMES = ("DNS", "email", "URI")


class CertificateSource:
    """Names the user after the certificate; None for clients whose certificate names nobody."""

    def __init__(self, identity: CertificateIdentity, username: CertificateUsername) -> None:
        self._identity = identity
        self._username = username

    def authenticate(self, request: ConnectRequest) -> Verdict | None:
        names = names_of(request.certificate or {}, self._identity)
        if not names:
            return None
        given = request.username
        if given is not None and self._username is CertificateUsername.MATCH:
            if given not in names:
                return Verdict(reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD)
            user = given
        elif len(names) == 1:
            user = names[0]
        else:
            # Several names and none chosen: guessing one could give the wrong rights.
            return Verdict(reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        return Verdict(user=user, expires=expiry_of(request.certificate or {}))


def names_of(certificate: Mapping[str, Any], identity: CertificateIdentity) -> list[str]:
    """Usable names in a certificate as `ssl.SSLSocket.getpeercert()` gives it, in its order."""
    if identity is CertificateIdentity.CN:
        found = [
            value
            for relative_name in certificate.get("subject", ())
            for kind, value in relative_name
            if kind == "commonName"
        ]
    elif identity is CertificateIdentity.SAN:
        found = [value for kind, value in certificate.get("subjectAltName", ()) if kind in _NAMES]
    else:
        found = []
    return [name for name in dict.fromkeys(found) if not _problem(name, identity)]


def _problem(name: str, identity: CertificateIdentity) -> str:
    # A URI has a colon by nature; the password file, where it would matter, is not involved.
    return check_user_name(name.replace(":", "") if identity is CertificateIdentity.SAN else name)


def expiry_of(certificate: Mapping[str, Any]) -> float | None:
    """When it runs out, wall clock."""
    try:
        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))
    except (KeyError, ValueError):
        return None
