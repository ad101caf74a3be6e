"""From a TOML file, the environment, `--set` and options to one `Settings`.

Later sources win: file, environment, `--set`, explicit options. All of them are laid into one tree of `Given`
leaves first, so that every refusal can say where the value came from, and are checked once, when the tree is
turned into dataclasses. Unknown keys are refused: a misspelt limit would otherwise be no limit.
"""

import dataclasses
import difflib
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.settings.errors import SettingsError
from tidegate.settings.model import (
    ListenerSettings,
    ListenerType,
    Settings,
    check_classes,
    check_listeners,
    check_shared,
    item_type,
)
from tidegate.settings.values import Given, convert

ENVIRONMENT_PREFIX = "TIDEGATE_"
LISTENERS = "listeners"
CLASSES = "classes"
SHARED = "shared"
LISTS = (LISTENERS, CLASSES, SHARED)
_PATH_KEYS = ("certfile", "keyfile", "client_ca")

Tree = dict[str, Any]


def load_settings(
    path: Path | None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Settings:
    """Reads and checks all sources; raises SettingsError for the first thing that is wrong.

    `overrides` are `key=value` texts of `--set`; `options` are dotted keys with typed values
    and win over all.
    `environ` is read only when given, so that a caller decides whether the environment counts.
    """
    settings: Settings = _build(Settings, _gather(path, overrides, environ, options), "")
    check_listeners(settings.listeners)
    check_classes(settings.classes)
    check_shared(settings.shared)
    return settings


def given_keys(
    path: Path | None, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> frozenset[str]:
    """The dotted keys that some source sets, known or not: what somebody decided, apart from the defaults."""
    return frozenset(_leaf_keys(_gather(path, overrides, environ, None), ""))


def known_keys() -> list[str]:
    """Every dotted key, with `listeners.0` standing for any listener."""
    return list(_keys(Settings, ""))


def _gather(
    path: Path | None,
    overrides: Sequence[str],
    environ: Mapping[str, str] | None,
    options: Mapping[str, object] | None,
) -> Tree:
    tree = _read_file(path) if path is not None else {}
    tree.setdefault(LISTENERS, [{}])
    tree.setdefault(CLASSES, [])
    tree.setdefault(SHARED, [])
    for name, text in sorted((environ or {}).items()):
        key = _environment_key(name)
        if key is not None:
            _put(tree, key, Given(text, f"environment {name}", is_text=True))
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            raise SettingsError(
                "--set needs a key and a value",
                key=name.strip() or "--set",
                value=override,
                hint="write --set limits.max_connections=500",
            )
        _put(tree, name.strip(), Given(text.strip(), "--set", is_text=True))
    for name, value in (options or {}).items():
        _put(tree, name, Given(value, "command line"))
    return tree


def _read_file(path: Path) -> Tree:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise SettingsError(
            f"cannot read {path}: {error.strerror or error}",
            value=str(path),
            hint="check the name of the file",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} is not valid TOML: {error}",
            value=str(path),
            hint="strings need quotes, tables [brackets]",
        ) from error
    return _leaves(document, str(path), path.parent)


def _leaves(table: Mapping[str, Any], origin: str, folder: Path) -> Tree:
    tree: Tree = {}
    for key, value in table.items():
        if isinstance(value, dict):
            tree[key] = _leaves(value, origin, folder)
        elif key in LISTS and isinstance(value, list) and all(isinstance(item, dict) for item in value):
            tree[key] = [_leaves(_anchored(item, folder), origin, folder) for item in value]
        else:
            tree[key] = Given(value, origin)
    return tree


def _anchored(listener: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """File names in a configuration file are relative to that file, wherever the program was started."""
    keys = _PATH_KEYS + (("path",) if listener.get("type") == ListenerType.UNIX else ())
    anchored = dict(listener)
    for key in keys:
        if isinstance(value := listener.get(key), str) and value:
            anchored[key] = str(folder / value)
    return anchored


def _environment_key(name: str) -> str | None:
    """The key a variable sets, or None if it is no setting of ours.

    A container platform that runs a service called tidegate adds variables such as TIDEGATE_PORT and
    TIDEGATE_SERVICE_HOST by itself, so a name without a double underscore counts only if it is a known key.
    """
    if not name.startswith(ENVIRONMENT_PREFIX):
        return None
    key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
    if "." in key:
        return key
    top_level = {field.name for field in dataclasses.fields(Settings)}
    hints = typing.get_type_hints(Settings)
    return key if key in top_level and hints[key] in (str, int, float, bool) else None


def _put(tree: Tree, key: str, given: Given) -> None:
    """Lays one leaf into the tree, making tables on the way; an index one past the end adds a listener."""
    parts = key.split(".")
    node: Any = tree
    for depth, part in enumerate(parts):
        is_last = depth == len(parts) - 1
        if isinstance(node, list):
            if not part.isdecimal() or int(part) > len(node) or is_last:
                raise SettingsError(
                    "names no table of the list",
                    key=key,
                    value=given.value,
                    origin=given.origin,
                    hint=f"{parts[0]} are numbered from 0; {parts[0]}.{len(node)} adds one",
                )
            if int(part) == len(node):
                node.append({})
            node = node[int(part)]
        elif is_last and not isinstance(node.get(part), dict | list):
            node[part] = given
        elif is_last:
            raise SettingsError(
                "is a table, not a value",
                key=key,
                value=given.value,
                origin=given.origin,
                hint=f"name a key in it, such as {_nearest(key + '.', known_keys()) or key}",
            )
        else:
            node = node.setdefault(part, {})
            if isinstance(node, Given):
                raise _unknown(key, given)


def _build(cls: Any, tree: Tree, prefix: str) -> Any:
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for name, node in tree.items():
        key = f"{prefix}{name}"
        if name not in fields:
            raise _unknown(*_first_leaf(key, node))
        wanted = hints[name]
        item = item_type(wanted)
        if item is not None:
            if not isinstance(node, list):
                raise SettingsError(
                    f"{name} are tables of their own", key=key, value=_shown(node), hint=f"write [[{name}]]"
                )
            values[name] = tuple(_build(item, each, f"{key}.{at}.") for at, each in enumerate(node))
        elif dataclasses.is_dataclass(wanted):
            if isinstance(node, Given):
                hint = (
                    f"name a key in it: {next(_keys(wanted, key + '.'))}"
                    if node.is_text
                    else f"write [{key}]"
                )
                raise SettingsError(
                    "is a table, not a value", key=key, value=node.value, origin=node.origin, hint=hint
                )
            values[name] = _build(wanted, node, f"{key}.")
        else:
            given = Given(_shown(node), "") if isinstance(node, dict | list) else node
            values[name] = convert(key, given, wanted, fields[name].metadata)
    return cls(**values)


def _keys(cls: Any, prefix: str) -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        wanted = hints[field.name]
        item = item_type(wanted)
        if item is not None:
            yield from _keys(item, f"{prefix}{field.name}.0.")
        elif dataclasses.is_dataclass(wanted):
            yield from _keys(wanted, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def _leaf_keys(node: Any, key: str) -> Iterator[str]:
    if isinstance(node, Given):
        yield key
        return
    for name, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield from _leaf_keys(child, f"{key}.{name}" if key else str(name))


def _first_leaf(key: str, node: Any) -> tuple[str, Given]:
    """The deepest name to complain about: of an unknown table, its first key."""
    while isinstance(node, dict) and node:
        name, node = next(iter(node.items()))
        key = f"{key}.{name}"
    return key, node if isinstance(node, Given) else Given(_shown(node), "")


def _shown(node: Any) -> Any:
    if isinstance(node, Given):
        return node.value
    if isinstance(node, dict):
        return {name: _shown(child) for name, child in node.items()}
    if isinstance(node, list):
        return [_shown(child) for child in node]
    return node


def _unknown(key: str, given: Given) -> SettingsError:
    near = _nearest(key, known_keys())
    hint = f"did you mean {near}?" if near else "docs/configuration.md lists every key"
    if key in {field.name for field in dataclasses.fields(ListenerSettings)}:
        # The first thing most people try: `port = 1884` at the top of the file.
        hint = f"did you mean {LISTENERS}.0.{key}?"
        if not given.is_text:
            hint = f"{key} belongs to a listener: write [[listeners]] on the line above"
    return SettingsError("unknown key", key=key, value=given.value, origin=given.origin, hint=hint)


def _nearest(key: str, known: list[str]) -> str | None:
    """The known key most like `key`; a right last part in the wrong table counts as near, too."""
    index = next((part for part in key.split(".") if part.isdecimal()), "0")
    candidates = [name.replace(".0.", f".{index}.") for name in known]
    close = difflib.get_close_matches(key, candidates, n=1, cutoff=0.6)
    if close:
        return close[0]
    last = key.rpartition(".")[2]
    by_last = {name.rpartition(".")[2]: name for name in candidates}
    near = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    return by_last[near[0]] if near else None
