"""One value, from what was written to what the field holds.

A value comes typed (TOML, command-line options) or as text (environment, `--set`). Either way the field's
annotation decides what is right, and a refusal says which values would have been.
"""

import contextlib
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidegate.settings.errors import SettingsError

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody wrote it, and where."""

    value: object
    origin: str
    is_text: bool = False


class _WrongValueError(Exception):
    """The value does not fit; the caller knows the key."""


def describe(annotation: Any, metadata: Mapping[str, Any]) -> str:
    """What a field takes, in words: its type, and its range or choices."""
    optional, inner = _unwrap(annotation)
    if isinstance(inner, type) and issubclass(inner, StrEnum):
        return _alternatives(member.value for member in inner)
    if "choices" in metadata:
        return _alternatives(metadata["choices"])
    if inner is bool:
        return "true, false or auto" if optional else "true or false"
    if typing.get_origin(inner) is tuple:
        return "list of strings"
    name = {int: "whole number", float: "number", str: "string", Path: "path"}[inner]
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if low is not None and high is not None:
        return f"{name} from {low} to {high}"
    if low is not None:
        return f"{name}, at least {low}"
    return name


def convert(key: str, given: Given, annotation: Any, metadata: Mapping[str, Any]) -> Any:
    """The value for a field; SettingsError names key, value, origin and what is valid."""
    optional, inner = _unwrap(annotation)
    value = given.value
    try:
        if optional and (value == AUTO if inner is bool else value in ("", None)):
            return None
        if isinstance(value, str):
            converted = _from_text(value, inner) if given.is_text else _from_string(value, inner)
        else:
            converted = _from_typed(value, inner)
        _check_range(converted, metadata)
    except _WrongValueError as wrong:
        raise SettingsError(
            str(wrong),
            key=key,
            value=value,
            origin=given.origin,
            hint=f"valid: {describe(annotation, metadata)}",
        ) from None
    return converted


def _unwrap(annotation: Any) -> tuple[bool, Any]:
    """Whether None is allowed, and the type without it."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        return True, inner[0]
    return False, annotation


def _from_text(text: str, wanted: Any) -> Any:
    if wanted is bool:
        word = text.strip().lower()
        if word in TRUE or word in FALSE:
            return word in TRUE
        raise _WrongValueError("neither true nor false")
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            raise _WrongValueError("not a whole number" if wanted is int else "not a number") from None
    if typing.get_origin(wanted) is tuple:
        return _list_of(text, wanted)
    return _from_string(text, wanted)


def _list_of(text: str, wanted: Any) -> Any:
    """Written as in a file, `["a", "b"]`, or with commas: `a, b`. An IPv6 address begins with a bracket, too."""
    if text.startswith("["):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            return _from_typed(tomllib.loads(f"list = {text}")["list"], wanted)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _from_string(text: str, wanted: Any) -> Any:
    if "\0" in text:
        raise _WrongValueError("holds a NUL character")
    if wanted in (str, Path):
        return wanted(text)
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        try:
            return wanted(text)
        except ValueError:
            raise _WrongValueError("not one of the choices") from None
    raise _WrongValueError("a string here")


def _from_typed(value: object, wanted: Any) -> Any:
    # bool is a subclass of int, and max_connections = true is surely a mistake.
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _WrongValueError("too large") from None
    if wanted is Path and isinstance(value, Path):
        return value
    if typing.get_origin(wanted) is tuple and isinstance(value, list | tuple):
        if all(isinstance(part, str) for part in value):
            return tuple(value)
        raise _WrongValueError("a list that holds something other than strings")
    raise _WrongValueError(f"a {_toml_name(value)} here")


def _check_range(value: Any, metadata: Mapping[str, Any]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise _WrongValueError("not a finite number")
    if "choices" in metadata and value not in metadata["choices"]:
        raise _WrongValueError("not one of the choices")
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if low is not None and value < low:
        raise _WrongValueError("too small")
    if high is not None and value > high:
        raise _WrongValueError("too large")


def _alternatives(names: Iterable[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _toml_name(value: object) -> str:
    names = {bool: "boolean", int: "whole number", float: "number", list: "list", dict: "table"}
    return names.get(type(value), type(value).__name__)
