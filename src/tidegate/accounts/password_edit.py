"""Changes a password file: one account at a time, in one step, with everything else left as it is.

The new file is written beside the old one, synced and renamed over it, so that a broker that reads at that moment
sees the old or the new one. The folder is locked meanwhile: two changes at once do not lose one of them.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.accounts.errors import AccountsError, ScramError
from tidegate.accounts.password_file import (
    MEMORY_COST_KIB,
    PARALLELISM,
    SECRET,
    TIME_COST,
    check_user_name,
    new_secret_line,
    parse_password_file,
)
from tidegate.accounts.passwords import MAX_PASSWORD, hash_password
from tidegate.accounts.saslprep import saslprep
from tidegate.accounts.scram_keys import DEFAULT_ITERATIONS, SALT_SIZE, derive_keys, format_keys

MODE = 0o600


def set_password(
    path: Path, user: str, password: bytes, *, scram: bool = False, iterations: int = DEFAULT_ITERATIONS
) -> bool:
    """Add an account or change its password; True if it is new. AccountsError if name or password will not do.

    With `scram`, or if the account had them before, SCRAM keys are written, too: keys of the old password must not
    stay valid beside the new one.
    """
    _check(user, password)
    argon2 = hash_password(
        password, time_cost=TIME_COST, memory_cost_kib=MEMORY_COST_KIB, parallelism=PARALLELISM
    )
    with _locked(path) as (lines, write):
        accounts = parse_password_file("\n".join(lines), str(path)).accounts
        old = accounts.get(user)
        new = [f"{user}:{argon2}"]
        if scram or (old is not None and old.scram is not None):
            new.append(_scram_line(user, password, iterations))
            if not any(line.startswith(f":{SECRET}") for line in lines):
                lines.append(new_secret_line())
        write(_replace(lines, user, new))
    return old is None


def delete_account(path: Path, user: str) -> None:
    """Remove every line of an account; AccountsError if there is none."""
    with _locked(path) as (lines, write):
        if user not in parse_password_file("\n".join(lines), str(path)).accounts:
            raise AccountsError("no such account", file=str(path), hint="--list shows the names")
        write(_replace(lines, user, []))


def _check(user: str, password: bytes) -> None:
    if problem := check_user_name(user):
        raise AccountsError(problem)
    if not password:
        raise AccountsError("the password is empty", hint="an account needs one")
    if len(password) > MAX_PASSWORD:
        raise AccountsError(f"the password is longer than {MAX_PASSWORD} bytes")


def _scram_line(user: str, password: bytes, iterations: int) -> str:
    hint = "SCRAM compares names and passwords in the form of SASLprep (RFC 4013)"
    try:
        if saslprep(user, is_stored=True) != user:
            raise AccountsError("the user name is not in its prepared form", hint=hint)
        text = password.decode()
        saslprep(text, is_stored=True)
        keys = derive_keys(text, secrets.token_bytes(SALT_SIZE), iterations)
    except (ValueError, ScramError):
        raise AccountsError("the name or password holds a character that SCRAM excludes", hint=hint) from None
    return f"{user}:{format_keys(keys)}"


def _replace(lines: list[str], user: str, new: list[str]) -> list[str]:
    """The lines with those of a user exchanged, at the place of the first."""
    kept: list[str] = []
    place: int | None = None
    for line in lines:
        if line.startswith(f"{user}:"):
            place = len(kept) if place is None else place
        else:
            kept.append(line)
    place = len(kept) if place is None else place
    return [*kept[:place], *new, *kept[place:]]


@contextmanager
def _locked(path: Path) -> Iterator[tuple[list[str], Callable[[list[str]], None]]]:
    """Lines of the file (none if it does not exist) and how to write them back, while nobody else does."""
    path = Path(os.path.realpath(path))  # a link stays a link
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _error(error, path.parent) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except UnicodeDecodeError:
            raise AccountsError("not UTF-8 text", file=str(path)) from None
        except OSError as error:
            raise _error(error, path) from None
        lines = text.removesuffix("\n").split("\n") if text else []
        yield lines, lambda changed: _write(path, changed, folder)
    finally:
        os.close(folder)


def _write(path: Path, lines: list[str], folder: int) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    data = "".join(f"{line}\n" for line in lines).encode()
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        try:
            _keep_owner(file, path)
            os.fchmod(file, MODE)
            with open(file, "wb", closefd=False) as stream:
                stream.write(data)
            os.fsync(file)
        finally:
            os.close(file)
        temporary.replace(path)
        os.fsync(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _error(error, path) from None


def _keep_owner(file: int, path: Path) -> None:
    """The administrator edits, the service reads: the file stays the service's."""
    try:
        old = path.stat()
        os.fchown(file, old.st_uid, old.st_gid)
    except (FileNotFoundError, PermissionError):
        pass  # a new file, or an editor who owns it anyway


def _error(error: OSError, path: Path) -> AccountsError:
    return AccountsError((error.strerror or "cannot be used").lower(), file=str(path))
