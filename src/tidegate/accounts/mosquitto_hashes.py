"""Password hashes that `mosquitto_passwd` writes, so that a password file of Mosquitto can be used as it is.

    ada:$7$101$salt$hash    PBKDF2 with SHA-512 and that many rounds (Mosquitto 2)
    ada:$6$salt$hash        SHA-512 of password and salt (Mosquitto 1)

Both cost an attacker who steals the file far less than Argon2id does. They are checked and never written:
`tidegate passwd FILE USER` replaces such a line with an Argon2id hash.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from tidegate.accounts.errors import ScramError
from tidegate.accounts.scram_keys import decode_base64, encode_base64

PREFIXES = ("$7$", "$6$")
MAX_ITERATIONS = 10_000_000
HASH_SIZE = 64
SALT_SIZE = 12


def check_form(stored: str) -> None:
    """Raises ScramError for what no Mosquitto could have written."""
    try:
        iterations, salt, value = _parts(stored)
    except ValueError:
        raise ScramError("not a hash of mosquitto_passwd") from None
    if not 1 <= iterations <= MAX_ITERATIONS or not salt or len(value) != HASH_SIZE:
        raise ScramError("a hash of mosquitto_passwd with parameters out of range")


def verify(stored: str, password: bytes) -> bool:
    """Whether the password fits a hash that `check_form` has accepted."""
    iterations, salt, value = _parts(stored)
    if stored.startswith("$7$"):
        found = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, HASH_SIZE)
    else:
        found = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(found, value)


def made_up(shape: str) -> str:
    """A hash that fits no known password; `shape` is a stored one without its last two parts."""
    salt, value = (encode_base64(secrets.token_bytes(size)) for size in (SALT_SIZE, HASH_SIZE))
    return f"{shape}${salt}${value}"


def _parts(stored: str) -> tuple[int, bytes, bytes]:
    """Rounds, salt and hash; ValueError if there are not as many."""
    kind, *rounds, salt, value = stored.split("$")[1:]
    if len(rounds) != (1 if kind == "7" else 0):
        raise ValueError(stored[:3])
    return int(rounds[0]) if rounds else 1, decode_base64(salt), decode_base64(value)
