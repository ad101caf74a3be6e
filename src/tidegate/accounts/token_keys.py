"""Keys that check tokens: read from PEM or JWKS, each tied to the algorithms its kind allows.

That tie is what makes the classic confusion impossible (a public RSA key taken as the secret of an HMAC): which
algorithm may be used follows from the key and the settings, never from the token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.accounts.errors import AccountsError

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
HMAC_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}  # RFC 7518 section 3.2: at least the size of the hash
KNOWN = frozenset({*RSA, *CURVES.values(), *HMAC_BYTES, "EdDSA"})  # "none" is not known, and never will be
MINIMUM_RSA_BITS = 2_048
MAX_KEYS = 32  # a token without `kid` is tried against each
_PRIVATE = ("d", "p", "q")


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One key, its `kid` if it has one, and the algorithms it may be used with."""

    kid: str | None
    algorithms: tuple[str, ...]
    key: Any = field(repr=False)


def read_keys(path: Path, allowed: tuple[str, ...]) -> tuple[TokenKey, ...]:
    """The usable keys of a file; AccountsError if there are none or the file is wrong."""
    file = str(path)
    unknown = [name for name in allowed if name not in KNOWN]
    if unknown or not allowed:
        raise AccountsError(
            f"{', '.join(unknown) or 'no'} algorithm for tokens",
            hint=f"accounts.jwt_algorithms takes {', '.join(sorted(KNOWN))}",
        )
    try:
        import jwt  # noqa: F401
        from cryptography.hazmat.primitives import serialization  # noqa: F401
    except ImportError:
        raise AccountsError("tokens need PyJWT", hint="install tidegate[jwt]") from None
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = (error.strerror or "cannot be read").lower()
        raise AccountsError(problem, file=file, hint="name a file that the broker can read") from None
    is_jwks = data.lstrip()[:1] == b"{"
    keys = tuple(_from_jwks(data, file, allowed) if is_jwks else _from_pem(data, file, allowed))
    if not keys:
        raise AccountsError(
            f"no key for {', '.join(allowed)}",
            file=file,
            hint="check accounts.jwt_algorithms and the kind of key",
        )
    if len(keys) > MAX_KEYS:
        raise AccountsError(f"more than {MAX_KEYS} keys", file=file, hint="remove old ones")
    return keys


def _from_pem(data: bytes, file: str, allowed: tuple[str, ...]) -> Iterator[TokenKey]:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    if b"PRIVATE KEY" in data:
        raise AccountsError(
            "a private key", file=file, hint="checking tokens needs the public key only; keep the other away"
        )
    for block in _pem_blocks(data):
        try:
            if b"BEGIN CERTIFICATE" in block:
                key: Any = x509.load_pem_x509_certificate(block).public_key()
            else:
                key = serialization.load_pem_public_key(block)
        except (ValueError, UnsupportedAlgorithm):
            raise AccountsError(
                "not a public key in PEM form", file=file, hint="or give a JWKS file"
            ) from None
        algorithms = tuple(name for name in fitting(key, file) if name in allowed)
        if algorithms:
            yield TokenKey(None, algorithms, key)


def _pem_blocks(data: bytes) -> Iterator[bytes]:
    parts = data.split(b"-----BEGIN ")
    for part in parts[1:]:
        yield b"-----BEGIN " + part


def _from_jwks(data: bytes, file: str, allowed: tuple[str, ...]) -> Iterator[TokenKey]:
    import jwt

    try:
        document = json.loads(data)
        entries = document.get("keys", [document])
        if not all(isinstance(entry, dict) for entry in entries):
            raise TypeError
    except (ValueError, AttributeError, TypeError):
        raise AccountsError("not a JWKS", file=file, hint='a JSON object with a list "keys"') from None
    for entry in entries:
        if entry.get("use", "sig") != "sig":
            continue
        if any(name in entry for name in _PRIVATE):
            raise AccountsError("a private key", file=file, hint="publish the public part only")
        try:
            key = jwt.PyJWK(entry).key
        except jwt.PyJWTError:
            # Its text would quote the key, secret ones included. A set may hold kinds that we do not know.
            continue
        algorithms = [name for name in fitting(key, file) if name in allowed]
        if "alg" in entry:
            algorithms = [name for name in algorithms if name == entry["alg"]]
        kid = entry.get("kid")
        if algorithms:
            yield TokenKey(kid if isinstance(kid, str) else None, tuple(algorithms), key)


def fitting(key: Any, file: str) -> tuple[str, ...]:
    """The algorithms a key can be used with; AccountsError if it is too weak for any."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < MINIMUM_RSA_BITS:
            raise AccountsError(
                "an RSA key that is too short", file=file, hint=f"{MINIMUM_RSA_BITS} bits or more"
            )
        return RSA
    if isinstance(key, ec.EllipticCurvePublicKey):
        name = CURVES.get(key.curve.name)
        return (name,) if name else ()
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return ("EdDSA",)
    if isinstance(key, bytes):
        if len(key) < min(HMAC_BYTES.values()):
            raise AccountsError("a symmetric key that is too short", file=file, hint="32 bytes or more")
        return tuple(name for name, size in HMAC_BYTES.items() if len(key) >= size)
    return ()
