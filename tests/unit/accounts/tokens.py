"""Keys and tokens made for a test."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def jwk(key: PrivateKey, **fields: str) -> dict[str, Any]:
    kinds: dict[type, str] = {rsa.RSAPublicKey: "RS256", ec.EllipticCurvePublicKey: "ES256"}
    public = key.public_key()
    name = next((name for kind, name in kinds.items() if isinstance(public, kind)), "EdDSA")
    return dict(jwt.get_algorithm_by_name(name).to_jwk(public, as_dict=True)) | fields


def secret_jwk(secret: bytes, **fields: str) -> dict[str, Any]:
    return {"kty": "oct", "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode(), **fields}


def write_jwks(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


class Seconds(float):
    """A moment so many seconds from when the token is made, not from when tests were collected."""


def token(
    key: PrivateKey | bytes, algorithm: str = "ES256", *, kid: str | None = None, **claims: Any
) -> bytes:
    """A token for ada that is valid for a minute, unless the claims say otherwise; None removes one."""
    given = {"sub": "ada", "exp": time.time() + 60} | claims
    given |= {name: time.time() + value for name, value in given.items() if isinstance(value, Seconds)}
    payload = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(payload, key, algorithm, headers={"kid": kid} if kid else None).encode()


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> bytes:
    """Anything in the form of a token."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
