"""Where a node opens the unix socket of its operator, and how programs of the same user find it by the node's address.

The socket lies in a folder that only this user may write to, under a name made from the address of the node's first
listener. Root finds the sockets of the service in `/run/tidegate`.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from tidegate.net.addresses import Endpoint, parse_address

SERVICE_FOLDER: Final = Path("/run/tidegate")  # only root can make it
ANY: Final = "any"  # instead of the host of a listener on every address
HERE: Final = "localhost"
SUFFIX: Final = ".operator"
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
PATIENCE: Final = 1.0  # seconds that a socket may take to answer


def place_for(endpoint: Endpoint) -> Path:
    """The socket for the operator of a node that listens there; its folder is made if need be. Raises `OSError`."""
    if endpoint.scheme == "unix":
        return Path(endpoint.path + SUFFIX)
    for folder in _folders():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and _is_trusted(folder):
            return folder / _names(endpoint)[0]
    raise FileNotFoundError("no folder for the operator's socket: set XDG_RUNTIME_DIR to one of your own")


def operators_way(address: str) -> str:
    """The address of the operator's socket if the node of this address runs here for this user; else the address."""
    endpoint = parse_address(address)
    if endpoint.scheme == "unix":
        found = Path(endpoint.path + SUFFIX)
        return f"unix:{found}" if _is_ours(found) and _answers(found) else address
    for folder in _folders():
        if _is_trusted(folder):
            for name in _names(endpoint):
                if _answers(folder / name):
                    return f"unix:{folder / name}"
    return address


def _folders() -> Iterator[Path]:
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given:
        yield Path(given) / "tidegate"
    yield SERVICE_FOLDER
    yield Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}"


def _is_trusted(folder: Path) -> bool:
    """Whether nobody else could have put a socket there."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    is_ours = found.st_uid == os.getuid() or folder == SERVICE_FOLDER
    return stat.S_ISDIR(found.st_mode) and is_ours and not found.st_mode & OTHERS_WRITE


def _is_ours(path: Path) -> bool:
    """Whether this user, or root, put it there: the folder may be anybody's."""
    try:
        return path.lstat().st_uid in (os.getuid(), 0)
    except OSError:
        return False


def _names(endpoint: Endpoint) -> list[str]:
    """The name for a listener; a client on this machine may have another word for its address."""
    host = endpoint.host.lower()
    try:
        address = ip_address(host)
    except ValueError:
        hosts = [HERE, ANY] if host == HERE else [host]
    else:
        is_usual = host in ("127.0.0.1", "::1")
        hosts = [HERE] if is_usual else [ANY] if address.is_unspecified else [host.replace(":", "_")]
        if address.is_loopback:
            hosts.append(ANY)
    return [f"{each}-{endpoint.port}{SUFFIX}" for each in hosts]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PATIENCE)
        try:
            probe.connect(str(path))
        except (OSError, ValueError):
            return False
    return True
