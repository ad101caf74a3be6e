"""A certificate authority for tests: made in milliseconds, valid for a day, never to be trusted elsewhere.

`cryptography` is imported when an authority is made, so that importing this module needs nothing extra.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Issued(NamedTuple):
    """Two PEM files: the certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into one folder. `certificate` is the PEM file a peer has to trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = _new_key()
        self._name = _subject(name)
        self._signed = _sign(
            subject=self._name, issuer=self._name, key=self._key, signer=self._key, authority=True
        )
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(_pem(self._signed))

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = LOOPBACK,
        valid_days: float = 1.0,
        key_password: str | None = None,
    ) -> Issued:
        """A certificate for servers and clients alike, with `name` as common name.

        A negative `valid_days` gives one that has already run out.
        """
        key = _new_key()
        signed = _sign(
            subject=_subject(name),
            issuer=self._name,
            key=key,
            signer=self._key,
            hosts=hosts,
            valid_days=valid_days,
        )
        issued = Issued(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        issued.certificate.write_bytes(_pem(signed))
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(_key_pem(key, key_password))
        return issued


def make_authority(folder: Path, name: str = "test-authority") -> Authority:
    """A new authority whose files go to `folder`, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return Authority(folder, name)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    # P-256: every TLS stack takes it and making one takes microseconds, where RSA takes a tenth of a second.
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(
    *,
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    authority: bool = False,
    hosts: Sequence[str] = (),
    valid_days: float = 1.0,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = datetime.datetime.now(datetime.UTC)
    ends = now + datetime.timedelta(days=valid_days)
    # Begins an hour earlier than now and than its end: clocks differ, and expired ones must be well-formed.
    begins = min(now, ends) - datetime.timedelta(hours=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=authority,
                crl_sign=authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not authority:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey, password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization

    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
