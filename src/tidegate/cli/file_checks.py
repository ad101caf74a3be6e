"""What `tidegate doctor` makes of files: accounts, rights, keys of tokens, and the data folder."""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.cli.checks import Finding, Outcome
from tidegate.settings import Settings

# A disk this full stops a busy broker within minutes: publishers then wait until there is room.
SCARCE_BYTES = 500_000_000
ACCOUNTS_FILES = ("password_file", "rights_file", "jwt_keys")


def check_accounts(settings: Settings) -> Iterator[Finding]:
    """Can every file about accounts be read and used, and can anybody get in at all?"""
    from tidegate.accounts import AccountsError, load

    accounts = settings.accounts
    is_usable = True
    for name in ACCOUNTS_FILES:
        path = getattr(accounts, name)
        if path is None:
            continue
        # One file at a time, by the very code that serve runs: the first fault must not hide the second.
        others: dict[str, Any] = {other: None for other in ACCOUNTS_FILES if other != name}
        try:
            loaded = load(replace(accounts, **others))
        except AccountsError as error:
            is_usable = False
            yield Finding(
                outcome=Outcome.FAIL, subject=f"accounts.{name}", observed=str(error), advice=error.hint
            )
            continue
        count = len(loaded.passwords.accounts) if loaded.passwords is not None else None
        observed = str(path) if count is None else f"{path}, {count} account{'s' * (count != 1)}"
        outcome, advice = Outcome.OK, ""
        if count == 0:
            outcome, advice = Outcome.WARN, f"tidegate passwd {path} USER"
        elif name == "password_file" and path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            observed += ", open to every user of this machine"
            outcome, advice = Outcome.WARN, f"chmod 600 {path}"
        yield Finding(outcome=outcome, subject=f"accounts.{name}", observed=observed, advice=advice)
    if is_usable:
        yield from _check_way_in(settings)


def _check_way_in(settings: Settings) -> Iterator[Finding]:
    from tidegate.accounts import AccountsError, load

    try:
        has_proofs = load(settings.accounts).has_proofs
    except AccountsError as error:  # files that are right one by one, and settings that do not fit together
        yield Finding(outcome=Outcome.FAIL, subject="accounts", observed=str(error), advice=error.hint)
        return
    if has_proofs:
        return
    for listener in settings.listeners:
        if not listener.accepts_anonymous:
            yield Finding(
                outcome=Outcome.WARN,
                subject=listener.address,
                observed="nobody can connect: no accounts, and no anonymous clients",
                advice="set accounts.password_file (tidegate passwd writes one), or allow_anonymous = true",
            )


def check_data(folder: Path | None) -> Iterator[Finding]:
    """Can the data folder be used: is it there or can it be made, is it writable, free, and is there room?"""
    if folder is None:
        return
    subject = f"data {folder}"

    def fail(observed: str, advice: str) -> Finding:
        return Finding(outcome=Outcome.FAIL, subject=subject, observed=observed, advice=advice)

    place = folder
    try:
        while not place.exists():
            place = place.parent
    except OSError as error:  # such as a name that is too long
        yield fail((error.strerror or str(error)).lower(), "choose another folder")
        return
    if not place.is_dir():
        yield fail(f"{place} is not a folder" if place != folder else "not a folder", "choose another folder")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        what = "not writable" if place == folder else f"cannot be made: {place} is not writable"
        yield fail(what, "choose another folder, or change its owner to the user that runs the broker")
        return
    if place == folder and _is_locked(folder):
        yield fail(
            "in use by another process", "stop that broker, or give this one a folder of its own (--data)"
        )
        return
    free = shutil.disk_usage(place).free
    observed = f"{'writable' if place == folder else 'will be made'}, {free / 1e9:,.1f} GB free"
    if free < SCARCE_BYTES:
        advice = "make room: a broker that cannot write lets publishers wait"
        yield Finding(outcome=Outcome.WARN, subject=subject, observed=observed, advice=advice)
    else:
        yield Finding(outcome=Outcome.OK, subject=subject, observed=observed)


def _is_locked(folder: Path) -> bool:
    """Whether a running broker holds the store. Tried on its lock file, which is never made by looking."""
    from tidegate.broker.store.store import FILE_NAME

    try:
        descriptor = os.open(folder / f"{FILE_NAME}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    finally:
        os.close(descriptor)
    return False
