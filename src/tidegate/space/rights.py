"""Who may read and write which space, from a TOML file.

    [tokens]
    anna = "sha256:2bb80d53…"      # of the bearer token, `tidegate space token` makes one

    [spaces.home]
    read = ["*"]                   # everybody
    write = ["anna", "mqtt"]       # anna over HTTP, and whom the MQTT broker lets publish there

Over MQTT the broker's own rights decide who reaches a space's topics; to the space they are all `mqtt`. Without a
file everybody may do everything, which is for a machine of one's own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from tidegate.space.errors import Fault, SpaceError

EVERYBODY: Final = "*"
ANONYMOUS: Final = "anonymous"
MQTT: Final = "mqtt"


class Access(StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass(slots=True)
class SpaceRights:
    """`is_open`: there is no file."""

    is_open: bool = True
    tokens: dict[str, str] = field(default_factory=dict)
    spaces: dict[str, dict[Access, frozenset[str]]] = field(default_factory=dict)

    def who(self, token: str | None) -> str:
        """The name a bearer token stands for; raises `SpaceError` for one that is not known."""
        if token is None:
            return ANONYMOUS
        digest = digest_of(token)
        found = ANONYMOUS
        for name, known in self.tokens.items():
            if hmac.compare_digest(digest, known):
                found = name
        if found == ANONYMOUS:
            raise SpaceError(Fault.FORBIDDEN, "the token is not known", hint="check it, or ask for another")
        return found

    def may(self, who: str, space: str, access: Access) -> bool:
        allowed = self.spaces.get(space, {}).get(access, frozenset())
        return self.is_open or EVERYBODY in allowed or who in allowed

    def check(self, who: str, space: str, access: Access) -> None:
        if not self.may(who, space, access):
            raise SpaceError(
                Fault.FORBIDDEN,
                f"{who} may not {access} space {space!r}",
                hint=f"ask the administrator for a line in [spaces.{space}]",
            )

    def oddities(self, served: Iterable[str]) -> list[str]:
        """What is allowed to nobody or for nothing: most likely a name that is spelt wrong."""
        known, names = {EVERYBODY, ANONYMOUS, MQTT, *self.tokens}, set(served)
        found = [f"[spaces.{space}]: no such space is served" for space in self.spaces if space not in names]
        if not self.is_open:
            found += [f"space {name!r} has no section: nobody may use it" for name in sorted(names - set(self.spaces))]
        for space, accesses in self.spaces.items():
            for access, allowed in accesses.items():
                found += [
                    f"[spaces.{space}] {access}: there is no token of {who!r}"
                    for who in sorted(allowed - known)
                ]
        return found


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def digest_of(token: str) -> str:
    """Of the bytes that were sent: a header's that are no UTF-8 come as surrogates."""
    return "sha256:" + hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def new_token() -> str:
    return secrets.token_urlsafe(24)


def load_rights(path: Path) -> SpaceRights:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(path, error.strerror or "cannot be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from None
    unknown = set(data) - {"tokens", "spaces"}
    if unknown:
        raise _wrong(path, f"unknown key {min(unknown)!r}; known are tokens and spaces")
    for key, table in data.items():
        if not isinstance(table, dict):
            raise _wrong(path, f"{key} is not a table")
    tokens = data.get("tokens", {})
    for name, digest in tokens.items():
        if not isinstance(digest, str) or not digest.startswith("sha256:") or len(digest) != 71:
            raise _wrong(path, f"tokens.{name} is not sha256: and 64 hexadecimal digits")
        if name in (EVERYBODY, ANONYMOUS, MQTT):
            raise _wrong(path, f"tokens.{name}: this name has a meaning of its own")
    spaces = {name: _accesses(path, name, fields) for name, fields in data.get("spaces", {}).items()}
    return SpaceRights(is_open=False, tokens=dict(tokens), spaces=spaces)


def _accesses(path: Path, space: str, fields: Any) -> dict[Access, frozenset[str]]:
    if not isinstance(fields, dict):
        raise _wrong(path, f"spaces.{space} is not a table")
    found: dict[Access, frozenset[str]] = {}
    for name, values in fields.items():
        if name not in list(Access):
            raise _wrong(path, f"spaces.{space}.{name}: known are read and write")
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise _wrong(path, f"spaces.{space}.{name} is not a list of names")
        found[Access(name)] = frozenset(values)
    return found


def _wrong(path: Path, problem: str) -> SpaceError:
    return SpaceError(Fault.MALFORMED, f"{path}: {problem}", hint="docs/space.md has an example")
