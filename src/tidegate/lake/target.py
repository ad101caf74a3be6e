"""Where files go: a local folder, or any file system that pyarrow knows by its address.

A file is visible under its name only when it is whole. On a local disk it is written under a temporary name, synced
and renamed; object stores show an upload when it is complete, so there it has its name from the beginning.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

import pyarrow as pa
from pyarrow import fs

from tidegate.lake.errors import LakeError
from tidegate.private import make_folder, opener, tighten
from tidegate.schema import TEMPORARY

OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


class Target:
    """A folder of some file system. Paths are relative to it, with slashes."""

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/") or "/"
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._is_atomic = filesystem.type_name in OBJECT_STORES

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Self:
        """A folder, or an address such as s3://bucket/lake; raises LakeError if the address makes no sense."""
        text = os.fspath(place)
        if "://" not in text:
            return cls(fs.LocalFileSystem(), str(Path(text).absolute()))
        try:
            filesystem, root = fs.FileSystem.from_uri(text)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LakeError(
                text, f"no such file system: {error}", "use a folder, or file://, s3://, gs://, hdfs://"
            ) from error
        return cls(filesystem, root)

    def __str__(self) -> str:
        return self.root if self.is_local else f"{self.filesystem.type_name}://{self.root}"

    def tighten(self) -> None:
        """The folders of tables, on a local disk, are closed to others, as all that is made in them."""
        if self.is_local and Path(self.root).is_dir():
            tighten(*Path(self.root).iterdir())

    def path(self, relative: str) -> str:
        return f"{self.root}/{relative}" if relative else self.root

    def create(self, relative: str) -> PendingFile:
        """A file to write; it gets its name with `commit`."""
        return PendingFile(self, relative, not self._is_atomic)

    def files(self, relative: str = "") -> Iterator[fs.FileInfo]:
        """All files below a folder, temporary ones included, in the order of their paths."""
        selector = fs.FileSelector(self.path(relative), allow_not_found=True, recursive=True)
        found = self.filesystem.get_file_info(selector)
        yield from sorted((info for info in found if info.is_file), key=lambda info: info.path)

    def relative(self, path: str) -> str:
        return path[len(self.root) :].lstrip("/")

    def delete(self, relative: str) -> None:
        self.filesystem.delete_file(self.path(relative))

    def move(self, old: str, new: str) -> None:
        self.filesystem.move(self.path(old), self.path(new))

    def read(self, relative: str) -> bytes:
        with self.filesystem.open_input_file(self.path(relative)) as file:
            return bytes(file.read())

    def exists(self, relative: str = "") -> bool:
        info = self.filesystem.get_file_info(self.path(relative))
        return bool(info.type != fs.FileType.NotFound)


class PendingFile:
    """Written under a temporary name in the folder it will be in. `stream` takes bytes."""

    def __init__(self, target: Target, relative: str, is_renamed: bool) -> None:
        self._target = target
        self.relative = relative
        path = PurePosixPath(relative)
        # Nobody else writes under this name, even if it is for the same file.
        hidden = f"{TEMPORARY}{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        self._written = str(path.with_name(hidden)) if is_renamed else relative
        folder = target.path(str(path.parent))
        self.stream: IO[bytes] | Any
        if target.is_local:
            make_folder(Path(folder))
            self.stream = open(target.path(self._written), "wb", opener=opener)  # noqa: SIM115 - closed by `commit` or `abort`
        else:
            target.filesystem.create_dir(folder, recursive=True)
            self.stream = target.filesystem.open_output_stream(target.path(self._written))

    def tell(self) -> int:
        return int(self.stream.tell())

    def commit(self) -> None:
        """The file is complete: on the disk, then visible. Raises OSError, and then it is neither."""
        if self._target.is_local:
            self.stream.flush()
            os.fsync(self.stream.fileno())
        self.stream.close()
        if self._written == self.relative:
            return
        if self._target.is_local:
            final = Path(self._target.path(self.relative))
            Path(self._target.path(self._written)).replace(final)
            _sync_folder(final.parent)
        else:
            self._target.move(self._written, self.relative)

    def abort(self) -> None:
        """Leave nothing behind, as far as that is possible."""
        try:
            self.stream.close()
        except (OSError, pa.ArrowException):
            pass  # what was not written is not wanted
        try:
            self._target.delete(self._written)
        except (OSError, pa.ArrowException):
            pass  # readers pass over it, and `lake prune` deletes it


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
