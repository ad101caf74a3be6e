"""TLS contexts with safe defaults, and errors that name the file at fault.

OpenSSL's own messages ("[SSL] PEM lib") say neither which file nor what to do; everything a context loads
is therefore checked one file at a time.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from tidegate.net.errors import TLSConfigError

# RFC 8996 retires TLS 1.0 and 1.1, so there is no name for them here.
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

# The protocol name MQTT has in the IANA registry of ALPN identifiers.
MQTT_ALPN = ("mqtt",)

StrPath = str | Path


def server_context(
    certfile: StrPath,
    keyfile: StrPath | None = None,
    *,
    client_ca: StrPath | None = None,
    require_client_certificate: bool = False,
    ciphers: str | None = None,
    minimum_version: str = "1.2",
    password: str | None = None,
    alpn: Sequence[str] = (),
) -> ssl.SSLContext:
    """A context for a listener; raises `TLSConfigError`.

    `certfile` holds the certificate and its chain, and the key too when `keyfile` is None. With `client_ca`
    a client may show a certificate, with `require_client_certificate` it must. `ciphers` is an OpenSSL list
    for TLS 1.2; TLS 1.3 keeps its own. Without overlap in `alpn` the handshake goes on without ALPN.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, minimum_version=minimum_version, ciphers=ciphers)
    # A client must not be able to make the server spend CPU on renegotiation, nor choose its weakest cipher.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_certificate(context, certfile, keyfile, password)
    if client_ca is not None:
        _load_authorities(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if require_client_certificate else ssl.CERT_OPTIONAL
    elif require_client_certificate:
        raise TLSConfigError(
            "client certificates are required, but nothing says who may sign them",
            hint="set client_ca to the file with the certificate of your authority",
        )
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def client_context(
    ca_file: StrPath | None = None,
    certfile: StrPath | None = None,
    keyfile: StrPath | None = None,
    *,
    insecure: bool = False,
    ciphers: str | None = None,
    minimum_version: str = "1.2",
    password: str | None = None,
    alpn: Sequence[str] = MQTT_ALPN,
) -> ssl.SSLContext:
    """A context for a dialer; raises `TLSConfigError`.

    Without `ca_file` the system's authorities are trusted. `insecure` turns off every check of the server's
    certificate: whoever stands in between can read and change everything.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, minimum_version=minimum_version, ciphers=ciphers)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file is not None:
        _load_authorities(context, ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certfile is not None:
        _load_certificate(context, certfile, keyfile, password)
    elif keyfile is not None:
        raise TLSConfigError(
            "a client key was given without its certificate", file=str(keyfile), hint="set certfile, too"
        )
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _restrict(context: ssl.SSLContext, *, minimum_version: str, ciphers: str | None) -> None:
    try:
        context.minimum_version = VERSIONS[minimum_version]
    except KeyError:
        raise TLSConfigError(
            f"unknown minimum version {minimum_version!r}", hint=f"use {' or '.join(VERSIONS)}"
        ) from None
    context.options |= ssl.OP_NO_COMPRESSION
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise TLSConfigError(
                f"no usable cipher in {ciphers!r}", hint="`openssl ciphers -v LIST` shows what a list means"
            ) from error


def _load_certificate(
    context: ssl.SSLContext, certfile: StrPath, keyfile: StrPath | None, password: str | None
) -> None:
    certificate_pem = _read_pem(certfile, "certificate")
    key_pem = certificate_pem if keyfile is None else _read_pem(keyfile, "private key")
    key_path = certfile if keyfile is None else keyfile
    if "BEGIN CERTIFICATE" not in certificate_pem:
        raise TLSConfigError(
            f"{certfile} holds no certificate", file=str(certfile), hint="give a PEM file, chain included"
        )
    if "PRIVATE KEY-----" not in key_pem:
        raise TLSConfigError(
            f"{key_path} holds no private key",
            file=str(key_path),
            hint="set keyfile to the PEM file of the key",
        )

    def answer() -> str:
        # Without a callback OpenSSL asks on the terminal, which hangs a service for ever.
        if password is None:
            raise TLSConfigError(
                f"the private key in {key_path} is encrypted",
                file=str(key_path),
                hint="give its password, or decrypt it with `openssl pkey`",
            )
        return password

    try:
        context.load_cert_chain(certfile, keyfile, answer)
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise TLSConfigError(
                f"the private key in {key_path} does not belong to the certificate in {certfile}",
                file=str(key_path),
                hint="give the key the certificate was issued for; the server's certificate comes first",
            ) from error
        raise TLSConfigError(
            f"{certfile} and {key_path} cannot be loaded ({error.reason or error})",
            file=str(key_path if password is not None else certfile),
            hint="check them with `openssl x509 -noout -in FILE` and `openssl pkey -noout -in FILE`",
        ) from error


def _load_authorities(context: ssl.SSLContext, path: StrPath) -> None:
    _read_pem(path, "authority")
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise TLSConfigError(
            f"{path} holds no authority certificate ({error.reason or error})",
            file=str(path),
            hint="give a PEM file with the certificates of the authorities to trust",
        ) from error


def _read_pem(path: StrPath, what: str) -> str:
    try:
        # latin-1 reads any bytes: a DER file gets the message about PEM instead of a decoding error.
        return Path(path).read_text(encoding="latin-1")
    except OSError as error:
        raise TLSConfigError(
            f"the {what} file {path} cannot be read ({error.strerror})",
            file=str(path),
            hint="check the path and the rights of the user that runs this",
        ) from error
