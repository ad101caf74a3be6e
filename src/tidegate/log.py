"""Log lines: short and coloured for a person at a terminal, one JSON object each for machines.

Rooms use `logging.getLogger("tidegate.<room>")` and pass what varies as `extra={...}`, never inside the
message, so that a message can be counted and a field searched. Everything goes to standard error; standard
output belongs to data. Client identifiers and topics are chosen by strangers: whatever could fake a line or
steer a terminal is escaped.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

ROOT = "tidegate"

# What every record has anyway; the rest of its attributes came in through `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
_COLOURS = {
    logging.DEBUG: "\x1b[2m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}


def configure(
    level: str = "info",
    format: str = "auto",
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Sends the log of all rooms to `stream` (standard error); calling it again replaces the earlier choice.

    `format` is human, json, or auto: human if the stream is a terminal. NO_COLOR in `environ` (the process's
    own by default) with any value switches colour off.
    """
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    is_terminal = stream.isatty()
    handler = logging.StreamHandler(stream)
    if format == "json" or (format == "auto" and not is_terminal):
        handler.setFormatter(JSONFormatter())
    else:
        handler.setFormatter(HumanFormatter(is_coloured=is_terminal and not environ.get("NO_COLOR")))
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    # An application that embeds a broker has its own root handlers; a line must not appear twice.
    logger.propagate = False


class HumanFormatter(logging.Formatter):
    """`12:30:01 warning  net  handshake failed  peer=127.0.0.1:40312`, in local time."""

    def __init__(self, *, is_coloured: bool) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        level = f"{record.levelname.lower():<8}"
        room = record.name.removeprefix(f"{ROOT}.")
        fields = " ".join(f"{name}={_readable(value)}" for name, value in _fields(record).items())
        message = _printable(record.getMessage())
        if self._is_coloured:
            moment, room = f"{_DIM}{moment}{_RESET}", f"{_DIM}{room}{_RESET}"
            level = f"{_COLOURS.get(record.levelno, '')}{level}{_RESET}"
            fields = f"{_DIM}{fields}{_RESET}" if fields else ""
        line = f"{moment} {level} {room}  {message}"
        if fields:
            line += f"  {fields}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


class JSONFormatter(logging.Formatter):
    """One object a line: `ts` (UTC, ISO 8601), `level`, `logger`, `message`, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _readable(value: object) -> str:
    text = _printable(str(value))
    return json.dumps(text, ensure_ascii=False) if not text or any(c in ' "=' for c in text) else text
