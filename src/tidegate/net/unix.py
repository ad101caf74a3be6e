"""Unix-domain sockets: bind one safely, and take its file away again.

The event loops unlink any socket file they find at the path, even when another process still listens on
it. Here a file is replaced only when nobody answers on it, and the mode is set before the first
connection can be made.
"""

from __future__ import annotations

import errno
import socket
import stat
from pathlib import Path

from tidegate.net.errors import AddressInUse, ListenError


def bind_unix(path: Path, *, mode: int) -> tuple[socket.socket, int]:
    """A bound socket that does not listen yet, and the inode number of its file.

    Raises `AddressInUse` or `ListenError`.
    """
    address = f"unix:{path}"
    remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.bind(str(path))
        # Before listen(): until then every connect is refused, so nobody slips in under the umask's mode.
        path.chmod(mode)
        inode = path.stat().st_ino
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(address, "somebody bound it at the same moment", hint="try again") from error
        raise ListenError(address, _reason(error), hint=_hint(error, path)) from error
    return bound, inode


def remove_stale(path: Path) -> None:
    """Unlink the socket file at `path` if it has no listener; leave every other kind of file alone."""
    address = f"unix:{path}"
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ListenError(address, _reason(error), hint=_hint(error, path)) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenError(address, "a file that is not a socket is in the way", hint="choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Non-blocking: a live listener with a full backlog answers EAGAIN instead of holding us up.
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINPROGRESS):
                raise ListenError(address, _reason(error), hint=_hint(error, path)) from error
    raise AddressInUse(
        address, "another process listens on it", hint="stop that process or choose another path"
    )


def unlink_own(path: Path, inode: int) -> None:
    """Remove the socket file if it is still the one with this inode number."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except OSError:
        # Somebody removed it first, or took our rights to the folder: a stale file is harmless.
        pass


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _hint(error: OSError, path: Path) -> str:
    if error.errno == errno.ENOENT:
        return f"create the folder {path.parent}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"give this user the right to write to {path.parent}"
    if error.errno is None or error.errno == errno.ENAMETOOLONG:
        # Python refuses paths longer than sockaddr_un's 108 bytes without an error number.
        return "use a path shorter than 108 bytes"
    return "choose another path"
