"""What both ends of SCRAM-SHA-256 (RFC 5802, RFC 7677) share: keys, proofs and the form of messages."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field

from tidegate.accounts.errors import ScramError
from tidegate.accounts.saslprep import saslprep

METHOD = "SCRAM-SHA-256"
MINIMUM_ITERATIONS = 4_096  # RFC 7677 section 4
MAXIMUM_ITERATIONS = 10_000_000  # a server must not be able to keep a client busy for minutes
# Between PostgreSQL's 4 096 and what a password hash should cost: it is the client, often a small device, that
# computes this at every connection.
DEFAULT_ITERATIONS = 15_000
SALT_SIZE = 16
MAX_MESSAGE = 4_096
MAX_NONCE = 512


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password: enough to check a proof, not enough to make one."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def digest(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256."""
    return hmac.digest(key, message, "sha256")


def salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    """`SaltedPassword` of RFC 5802; takes time in proportion to `iterations`. ScramError if not preparable."""
    try:
        prepared = saslprep(password)
    except ValueError as error:
        raise ScramError(f"the password holds {error}") from None
    return hashlib.pbkdf2_hmac("sha256", prepared.encode(), salt, iterations)


def derive_keys(password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> ScramKeys:
    """The keys to store for a password."""
    salted = salted_password(password, salt, iterations)
    stored_key = hashlib.sha256(digest(salted, b"Client Key")).digest()
    return ScramKeys(iterations, salt, stored_key, digest(salted, b"Server Key"))


def format_keys(keys: ScramKeys) -> str:
    """`SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, as PostgreSQL and others write it."""
    salt, stored, server = (encode_base64(part) for part in (keys.salt, keys.stored_key, keys.server_key))
    return f"{METHOD}${keys.iterations}:{salt}${stored}:{server}"


def parse_keys(text: str) -> ScramKeys:
    """The reverse of `format_keys`; ScramError, without the text, if it is something else."""
    try:
        method, head, tail = text.split("$")
        iterations, salt = head.split(":")
        stored, server = tail.split(":")
        keys = ScramKeys(int(iterations), decode_base64(salt), decode_base64(stored), decode_base64(server))
    except ValueError:
        raise ScramError("not of the form SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey") from None
    if method != METHOD or not keys.salt or {len(keys.stored_key), len(keys.server_key)} != {32}:
        raise ScramError("not the keys of SCRAM-SHA-256")
    if not MINIMUM_ITERATIONS <= keys.iterations <= MAXIMUM_ITERATIONS:
        raise ScramError(f"iterations must be from {MINIMUM_ITERATIONS} to {MAXIMUM_ITERATIONS}")
    return keys


def parse_attributes(message: str, *names: str) -> list[str]:
    """Values of `a=x,b=y`, which must be exactly these attributes in this order; ScramError otherwise.

    An attribute `m` announces an extension that must be understood; there is none, so it fails like any other.
    """
    parts = message.split(",")
    if len(parts) != len(names):
        raise ScramError("unexpected attributes")
    values: list[str] = []
    for part, name in zip(parts, names, strict=True):
        if not part.startswith(f"{name}=") or len(part) == 2:
            raise ScramError(f"attribute {name} is missing")
        values.append(part[2:])
    return values


def decode_message(data: bytes | None) -> str:
    """A message as text; ScramError if it is none, too long, or not UTF-8."""
    if not data or len(data) > MAX_MESSAGE:
        raise ScramError("a message that is empty or too long")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is not UTF-8") from None
    if "\0" in text:
        raise ScramError("a message with NUL")
    return text


def check_nonce(nonce: str) -> None:
    """A nonce is printable ASCII without comma (RFC 5802 section 7)."""
    if not 0 < len(nonce) <= MAX_NONCE or not all("!" <= c <= "~" and c != "," for c in nonce):
        raise ScramError("a nonce that is not printable")


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    """The reverse of `escape_name`; `=` may begin nothing else (RFC 5802 section 5.1)."""
    bare = text.replace("=2C", "").replace("=3D", "")
    if "=" in bare:
        raise ScramError("a name with a bare =")
    return text.replace("=2C", ",").replace("=3D", "=")


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    """Strict Base64, one text for each value; ValueError otherwise."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if encode_base64(data) != text:
        raise ValueError("spare bits that are not zero")
    return data
