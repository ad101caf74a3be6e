"""The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding; no I/O, no clock.

Rules: one object serves one exchange; the nonce is fresh, so nothing recorded can be played again; an unknown user
takes the same steps, with keys made up for it, and fails where a wrong password fails.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Protocol

from tidegate.accounts.errors import ScramError
from tidegate.accounts.saslprep import saslprep
from tidegate.accounts.scram_keys import (
    ScramKeys,
    check_nonce,
    decode_base64,
    decode_message,
    digest,
    encode_base64,
    parse_attributes,
    unescape_name,
)

NONCE_BYTES = 24


class KeyDirectory(Protocol):
    """Where stored keys are looked up."""

    def scram_keys(self, user: str) -> tuple[ScramKeys, bool]:
        """Keys of a user and True, or made-up keys, always the same for a name, and False."""
        ...


class ScramServer:
    """One exchange: `first`, then `final`."""

    __slots__ = ("_auth", "_channel", "_is_known", "_keys", "_nonce", "_nonce_part", "_source", "user")

    def __init__(self, source: KeyDirectory, *, nonce: str | None = None) -> None:
        self._source = source
        self._nonce_part = nonce or secrets.token_urlsafe(NONCE_BYTES)
        self._keys: ScramKeys | None = None
        self._is_known = False
        self._nonce = self._auth = self._channel = ""
        self.user = ""

    def first(self, data: bytes | None) -> bytes:
        """Take client-first-message, give server-first-message; ScramError if it is malformed."""
        header, authorisation, bare = _split_header(decode_message(data))
        name, client_nonce = parse_attributes(bare, "n", "r")
        check_nonce(client_nonce)
        user = _prepared(unescape_name(name))
        if authorisation and _prepared(unescape_name(authorisation)) != user:
            raise ScramError("nobody may act for somebody else")
        self.user = user
        self._keys, self._is_known = self._source.scram_keys(user)
        self._nonce = client_nonce + self._nonce_part
        self._channel = encode_base64(header.encode())
        answer = f"r={self._nonce},s={encode_base64(self._keys.salt)},i={self._keys.iterations}"
        self._auth = f"{bare},{answer}"
        return answer.encode()

    def final(self, data: bytes | None) -> bytes:
        """Take client-final-message, give server-final-message; ScramError unless it proves the password."""
        keys, self._keys = self._keys, None
        if keys is None:
            raise ScramError("not the time for this message")
        message = decode_message(data)
        without_proof = message.rpartition(",p=")[0]
        channel, nonce, proof_text = parse_attributes(message, "c", "r", "p")
        try:
            proof = decode_base64(proof_text)
        except ValueError:
            raise ScramError("a proof that is not Base64") from None
        auth = f"{self._auth},{without_proof}".encode()
        signature = digest(keys.stored_key, auth)
        # Every check is made before any of them decides, so that time tells nothing about which one failed.
        client_key = bytes(a ^ b for a, b in zip(proof.ljust(32, b"\0")[:32], signature, strict=True))
        is_proof = hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)
        is_channel = hmac.compare_digest(channel.encode(), self._channel.encode())
        is_nonce = hmac.compare_digest(nonce.encode(), self._nonce.encode())
        if not (is_proof & is_channel & is_nonce & self._is_known & (len(proof) == 32)):
            raise ScramError("the proof is wrong")
        return b"v=" + encode_base64(digest(keys.server_key, auth)).encode()


def _split_header(message: str) -> tuple[str, str, str]:
    """GS2 header, authorisation identity in it, and the bare message."""
    binding, _, rest = message.partition(",")
    authorisation, separator, bare = rest.partition(",")
    if not separator or binding not in ("n", "y"):
        # "p=": the client insists on channel binding, which the name of the method (no -PLUS) excludes.
        raise ScramError("channel binding is not offered")
    if authorisation and not authorisation.startswith("a="):
        raise ScramError("malformed header")
    return f"{binding},{authorisation},", authorisation[2:], bare


def _prepared(name: str) -> str:
    try:
        return saslprep(name)
    except ValueError:
        raise ScramError("a user name that cannot be prepared") from None
