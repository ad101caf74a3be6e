"""The password file: one line an account and kind of proof, comments and blank lines allowed.

    ada:$argon2id$v=19$m=19456,t=2,p=1$…          checks the password of CONNECT
    ada:$7$101$salt$hash                          the same, as `mosquitto_passwd` wrote it
    ada:SCRAM-SHA-256$15000:salt$StoredKey:ServerKey   for SCRAM by AUTH
    :SCRAM-SECRET$…                               makes up keys for users that do not exist

The last kind belongs to the file: without it, made-up salts would change with every restart, real ones would not,
and that would tell which users exist.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tidegate.accounts import mosquitto_hashes
from tidegate.accounts.errors import AccountsError, ScramError
from tidegate.accounts.scram_keys import (
    DEFAULT_ITERATIONS,
    SALT_SIZE,
    ScramKeys,
    decode_base64,
    digest,
    encode_base64,
    parse_keys,
)

T = TypeVar("T")

ARGON2 = "$argon2id$"
SCRAM = "SCRAM-SHA-256$"
SECRET = "SCRAM-SECRET$"
MAX_NAME = 1_024
# OWASP's second choice for Argon2id: 30 ms of CPU where it was measured. A broker sees all its clients return at
# once after an outage, so the cost is kept at what is recommended and not above.
TIME_COST, MEMORY_COST_KIB, PARALLELISM = 2, 19_456, 1
HINT = "write it with `tidegate passwd`"


@dataclass(frozen=True, slots=True)
class Account:
    """What is stored of one user; either proof may be missing."""

    password_hash: str | None = field(default=None, repr=False)
    scram: ScramKeys | None = field(default=None, repr=False)


class PasswordFile:
    """Accounts as they were when the file was read; never changed afterwards."""

    __slots__ = ("_dummy", "_secret", "_shape", "accounts")

    def __init__(self, accounts: Mapping[str, Account], secret: bytes | None = None) -> None:
        self.accounts = dict(accounts)
        self._secret = secret or secrets.token_bytes(32)
        # What is made up must look and cost like what is real: the commonest parameters of the file.
        shapes = Counter((a.scram.iterations, len(a.scram.salt)) for a in accounts.values() if a.scram)
        self._shape = shapes.most_common(1)[0][0] if shapes else (DEFAULT_ITERATIONS, SALT_SIZE)
        kinds = Counter(a.password_hash.rsplit("$", 2)[0] for a in accounts.values() if a.password_hash)
        usual = f"{ARGON2}v=19$m={MEMORY_COST_KIB},t={TIME_COST},p={PARALLELISM}"
        self._dummy = _made_up_hash(kinds.most_common(1)[0][0] if kinds else usual)

    def __repr__(self) -> str:
        return f"PasswordFile({len(self.accounts)} accounts)"

    def password_hash(self, user: str) -> tuple[str, bool]:
        """The hash of a user and True, or one that fits no password and False."""
        account = self.accounts.get(user)
        if account is None or account.password_hash is None:
            return self._dummy, False
        return account.password_hash, True

    def scram_keys(self, user: str) -> tuple[ScramKeys, bool]:
        """The keys of a user and True, or made-up ones, always the same for this file, and False."""
        iterations, size = self._shape
        name = user.encode(errors="surrogatepass")
        salt, stored, server = (
            digest(self._secret, kind + name) for kind in (b"salt:", b"stored:", b"server:")
        )
        made_up = ScramKeys(iterations, (salt * (size // 32 + 1))[:size], stored, server)
        account = self.accounts.get(user)
        if account is None or account.scram is None:
            return made_up, False
        return account.scram, True

    def revoked_since(self, old: PasswordFile) -> frozenset[str]:
        """Users of `old` whose proof is gone or changed: whoever logged in with it has to do so again."""
        return frozenset(
            user
            for user, was in old.accounts.items()
            if (now := self.accounts.get(user)) is None
            or (was.password_hash is not None and was.password_hash != now.password_hash)
            or (was.scram is not None and was.scram != now.scram)
        )


def check_user_name(name: str) -> str:
    """What is wrong with a name, in words; empty if nothing is."""
    if not name:
        return "a user name has at least one character"
    if ":" in name:
        return "a user name may not hold a colon"
    if any(
        ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 or c in "\u2028\u2029" for c in name
    ):
        return "a user name may not hold control characters"
    if name != name.strip() or name.startswith("#"):
        return "a user name may not begin or end with a space, nor begin with #"
    if len(name.encode()) > MAX_NAME:
        return f"a user name has at most {MAX_NAME} bytes"
    return ""


def read_password_file(path: Path) -> PasswordFile:
    """Parse a file; AccountsError names file and line, and quotes nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = (error.strerror or "cannot be read").lower()
        raise AccountsError(problem, file=str(path), hint="name a file that the broker can read") from None
    except UnicodeDecodeError:
        raise AccountsError("not UTF-8 text", file=str(path), hint=HINT) from None
    return parse_password_file(text, str(path))


def parse_password_file(text: str, name: str = "") -> PasswordFile:
    hashes: dict[str, str] = {}
    scram: dict[str, ScramKeys] = {}
    secret: bytes | None = None
    # Not splitlines(): it also splits at characters that are part of a name.
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.startswith("#"):
            continue
        user, separator, proof = line.partition(":")
        try:
            if not separator:
                raise ScramError("not of the form user:proof")
            if not user and proof.startswith(SECRET):
                secret = _parse_secret(proof)
                continue
            if problem := check_user_name(user):
                raise ScramError(problem)
            if proof.startswith(ARGON2):
                _check_argon2(proof)
                _add(hashes, user, proof)
            elif proof.startswith(mosquitto_hashes.PREFIXES):
                mosquitto_hashes.check_form(proof)
                _add(hashes, user, proof)
            elif proof.startswith(SCRAM):
                _add(scram, user, parse_keys(proof))
            else:
                raise ScramError("neither a password hash nor SCRAM keys")
        except ScramError as error:
            raise AccountsError(str(error), file=name, line=number, hint=HINT) from None
    users = hashes.keys() | scram.keys()
    return PasswordFile({user: Account(hashes.get(user), scram.get(user)) for user in users}, secret)


def new_secret_line() -> str:
    return f":{SECRET}{encode_base64(secrets.token_bytes(32))}"


def _parse_secret(proof: str) -> bytes:
    try:
        secret = decode_base64(proof.removeprefix(SECRET))
    except ValueError:
        raise ScramError("a secret that is not Base64") from None
    if len(secret) < 16:
        raise ScramError("a secret that is too short")
    return secret


def _check_argon2(proof: str) -> None:
    from argon2 import extract_parameters
    from argon2.exceptions import InvalidHashError

    try:
        parameters = extract_parameters(proof)
        _, salt, value = proof.rsplit("$", 2)
        sizes = [len(decode_base64(part + "=" * (-len(part) % 4))) for part in (salt, value)]
    except (InvalidHashError, ValueError):
        raise ScramError("not an Argon2id hash") from None
    # A gigabyte for each login is a mistake, not a policy.
    if parameters.memory_cost > 1_048_576 or parameters.time_cost > 64 or min(sizes) < 8:
        raise ScramError("an Argon2id hash with parameters out of range")


def _add(table: dict[str, T], user: str, proof: T) -> None:
    if user in table:
        raise ScramError("the user has such a line already")
    table[user] = proof


def _made_up_hash(shape: str) -> str:
    """A well-formed hash that no known password has; checking against it costs what its shape says."""
    if shape.startswith(ARGON2):
        salt, value = (encode_base64(secrets.token_bytes(size)).rstrip("=") for size in (16, 32))
        return f"{shape}${salt}${value}"
    return mosquitto_hashes.made_up(shape)
