"""Reads mosquitto.conf: lines of a name and a value, with the files of include_dir laid in where they are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidegate.migrate.errors import MigrationError

BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One setting as it stands in the file."""

    file: str
    number: int
    option: str
    value: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"

    def error(self, problem: str, hint: str = "") -> MigrationError:
        return MigrationError(f"{self.option}: {problem}", file=self.file, line=self.number, hint=hint)

    def as_bool(self) -> bool:
        if self.value.lower() not in BOOLEANS:
            raise self.error(f"{self.value!r} is neither true nor false")
        return BOOLEANS[self.value.lower()]

    def as_int(self, *, minimum: int = 0) -> int:
        try:
            number = int(self.value)
        except ValueError:
            raise self.error(f"{self.value!r} is not a whole number") from None
        if number < minimum:
            raise self.error(f"{number} is less than {minimum}")
        return number

    def as_path(self) -> Path:
        """The file it names. Mosquitto looks in its working directory; people mean beside the configuration."""
        path = Path(self.value)
        beside = Path(self.file).absolute().parent / path
        return beside if not path.is_absolute() and beside.exists() else path.absolute()


def read_lines(path: Path, *, is_main: bool = True) -> Iterator[Line]:
    """The settings of a file and of those it includes; MigrationError if one cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = (error.strerror or "cannot be read").lower()
        raise MigrationError(problem, file=str(path), hint="name Mosquitto's configuration file") from None
    except UnicodeDecodeError:
        raise MigrationError("not UTF-8 text", file=str(path), hint="save it as UTF-8") from None
    for number, raw in enumerate(text.split("\n"), 1):
        option, _, value = raw.strip().partition(" ")
        if not option or option.startswith("#"):
            continue
        line = Line(file=str(path), number=number, option=option, value=value.strip())
        if option != "include_dir":
            yield line
        elif is_main:  # [mosquitto.conf(5)] processed in the main file only
            yield from _read_folder(line)


def _read_folder(line: Line) -> Iterator[Line]:
    folder = line.as_path()
    if not folder.is_dir():
        raise line.error(f"{folder} is not a folder", "name the folder of the included files")
    # The order of mosquitto.conf(5): A before a, and both before B.
    for path in sorted(folder.glob("*.conf"), key=lambda path: (path.name.lower(), path.name)):
        yield from read_lines(path, is_main=False)
