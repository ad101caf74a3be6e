"""Device types out of a TOML file: a `[[device]]` for each, with `[[device.method]]` and `[[device.method.field]]`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from tidegate.rpc.errors import SchemaError
from tidegate.rpc.schema import DeviceType, Field, Kind, Method, Names, Topics, Types

T = TypeVar("T")

# Words of the file for fields of the classes, where the file has the shorter one.
_WORDS = {"required": "is_required", "echo": "can_echo"}


def load_types(path: Path) -> Types:
    """Read and check; raises `SchemaError` that names the place."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"{path}: {error.strerror}", hint="give a TOML file with [[device]]") from None
    except ValueError as error:
        raise SchemaError(f"{path}: {error}") from None
    rest = sorted(set(content) - {"device"})
    if rest:
        raise SchemaError(f"{path}: unknown key {rest[0]!r}", hint="a declaration has [[device]] only")
    return Types(
        tuple(_device(_table(entry, "device"), f"{path}: device") for entry in content.get("device", ()))
    )


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SchemaError(f"{where} is no table", hint="write [[device]]")
    return dict(value)


def _device(entry: dict[str, Any], where: str) -> DeviceType:
    where = f"{where} {entry.get('name', '')!r}"
    entry["methods"] = tuple(_method(_table(each, where), where) for each in entry.pop("method", ()))
    if "names" in entry:
        entry["names"] = _make(Names, _table(entry["names"], where), f"{where}: names")
    if "topics" in entry:
        entry["topics"] = _make(Topics, _table(entry["topics"], where), f"{where}: topics")
    return _make(DeviceType, entry, where)


def _method(entry: dict[str, Any], where: str) -> Method:
    where = f"{where}: method {entry.get('name', '')!r}"
    entry["fields"] = tuple(_field(_table(each, where), where) for each in entry.pop("field", ()))
    return _make(Method, entry, where)


def _field(entry: dict[str, Any], where: str) -> Field:
    where = f"{where}: field {entry.get('name', '')!r}"
    if "kind" in entry:
        try:
            entry["kind"] = Kind(entry["kind"])
        except ValueError:
            raise SchemaError(
                f"{where}: kind {entry['kind']!r}", hint=f"use one of {', '.join(Kind)}"
            ) from None
    if "choices" in entry:
        entry["choices"] = tuple(entry["choices"])
    return _make(Field, entry, where)


def _make(kind: Callable[..., T], entry: dict[str, Any], where: str) -> T:
    known = {each.name: str(each.type) for each in fields(kind)}  # type: ignore[arg-type]
    words = [word for word in known if word not in _WORDS.values()] + list(_WORDS)
    given = {}
    for word, value in entry.items():
        name = _WORDS.get(word, word)
        if name not in known:
            near = get_close_matches(word, words, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(words))}"
            raise SchemaError(f"{where}: unknown key {word!r}", hint=hint)
        _check(known[name], value, f"{where}: {word}")
        given[name] = value
    try:
        return kind(**given)
    except TypeError as error:
        raise SchemaError(f"{where}: {str(error).partition('() ')[2]}") from None


_SIMPLE: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "int | str": (int, str),
    "float | None": (int, float),
}


def _check(annotation: str, value: Any, where: str) -> None:
    wanted = _SIMPLE.get(annotation)
    if wanted is not None and (
        not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)
    ):
        raise SchemaError(f"{where} is {value!r}", hint=f"it is of type {annotation}")
