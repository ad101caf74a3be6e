"""The client's side of SCRAM-SHA-256: three messages, no I/O.

scram = ScramClient("ada", "secret")
CONNECT  Authentication Method SCRAM-SHA-256, Data scram.first()
AUTH     Data scram.final(data of the server's AUTH)
CONNACK  scram.verify(its data): the server knows the password, too
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from tidegate.accounts.errors import ScramError
from tidegate.accounts.saslprep import saslprep
from tidegate.accounts.scram_keys import (
    MAXIMUM_ITERATIONS,
    METHOD,
    MINIMUM_ITERATIONS,
    decode_base64,
    decode_message,
    digest,
    encode_base64,
    escape_name,
    parse_attributes,
    salted_password,
)

NONCE_BYTES = 24


class ScramClient:
    """One exchange; make a new one for each. Every method raises ScramError if the server is at fault."""

    __slots__ = ("_bare", "_nonce", "_password", "_server_signature")

    method = METHOD

    def __init__(self, user: str, password: str, *, nonce: str | None = None) -> None:
        self._nonce = nonce or secrets.token_urlsafe(NONCE_BYTES)
        self._password = password
        self._server_signature: bytes | None = None
        try:
            name = saslprep(user)
        except ValueError as error:
            raise ScramError(f"the user name holds {error}") from None
        self._bare = f"n={escape_name(name)},r={self._nonce}"

    def first(self) -> bytes:
        """client-first-message: no channel binding, no authorisation identity."""
        return f"n,,{self._bare}".encode()

    def final(self, data: bytes | None) -> bytes:
        """client-final-message for the server's first; takes as long as the server's iterations ask for."""
        server_first = decode_message(data)
        nonce, salt_text, iterations_text = parse_attributes(server_first, "r", "s", "i")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not extend ours")
        try:
            salt, iterations = decode_base64(salt_text), int(iterations_text)
        except ValueError:
            raise ScramError("a salt or count that cannot be read") from None
        if not MINIMUM_ITERATIONS <= iterations <= MAXIMUM_ITERATIONS:
            raise ScramError(f"the server asks for {iterations} iterations")
        salted = salted_password(self._password, salt, iterations)
        client_key = digest(salted, b"Client Key")
        without_proof = f"c={encode_base64(b'n,,')},r={nonce}"
        auth = f"{self._bare},{server_first},{without_proof}".encode()
        signature = digest(hashlib.sha256(client_key).digest(), auth)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = digest(digest(salted, b"Server Key"), auth)
        return f"{without_proof},p={encode_base64(proof)}".encode()

    def verify(self, data: bytes | None) -> None:
        """Check server-final-message: only a server that has our keys can have signed it."""
        [signature] = parse_attributes(decode_message(data), "v")
        expected = encode_base64(self._server_signature or secrets.token_bytes(32))
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            raise ScramError("the server's signature is wrong")
