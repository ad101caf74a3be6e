"""Settings as text: a TOML file that loads to the same settings, and the reference page of all keys."""

import dataclasses
import json
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidegate.settings.model import BY_TYPE, Settings, item_type
from tidegate.settings.values import describe

_INTRODUCTION = """\
# Configuration

This page is generated from the settings classes: `make docs` writes it, and a test keeps it up to date.

Tidegate runs without any configuration. What you want to change goes into a TOML file
(`tidegate serve --config tidegate.toml`), into the environment, or on the command line; later ones win:

1. the file: `[limits]` with `max_connections = 500`
2. the environment: `TIDEGATE_LIMITS__MAX_CONNECTIONS=500` (two underscores for each dot)
3. `--set limits.max_connections=500`
4. options such as `--port`

In the environment and for `--set`, a list is written as in the file, `--set 'cluster.budgets=["a=1", "b=2"]'`, or
with commas: `--set cluster.budgets=a=1,b=2`.

Unknown keys are refused with the nearest known one, and so are values of the wrong type or out of range.
`tidegate check-config FILE` checks a file without starting anything; `--show` prints every setting in effect.
Times are in seconds, sizes in bytes. File names in a configuration file are relative to that file.
"""

_LISTENERS = """\
Each listener is a table of its own; a file with none gets one on 127.0.0.1:1883. In the environment and for
`--set` they are numbered from 0: `TIDEGATE_LISTENERS__0__PORT=1884`, `--set listeners.1.type=ws`.
"""

TABLES = [name for name, wanted in typing.get_type_hints(Settings).items() if item_type(wanted) is not None]


def dump(settings: Settings) -> str:
    """The settings as TOML, with every key; `load_settings` of it gives equal settings."""
    return "\n".join(_tables(settings)) + "\n"


def render_reference() -> str:
    """docs/configuration.md: every key with its type, default and meaning."""
    defaults = Settings()
    hints = typing.get_type_hints(Settings)
    parts = [_INTRODUCTION, "## The node\n", _reference_table(Settings)]
    for field in dataclasses.fields(Settings):
        value = getattr(defaults, field.name)
        item = item_type(hints[field.name])
        if item is not None:
            text = _LISTENERS if field.name == "listeners" else f"{(item.__doc__ or '').strip()}\n"
            parts += [f"## [[{field.name}]]\n", text, _reference_table(item)]
        elif dataclasses.is_dataclass(value):
            summary = (hints[field.name].__doc__ or "").strip()
            parts += [f"## [{field.name}]\n", f"{summary}\n", _reference_table(hints[field.name])]
    return "\n".join(parts)


def _tables(settings: Settings) -> Iterator[str]:
    nested = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in TABLES or dataclasses.is_dataclass(value):
            nested.append((field.name, value))
        elif value is not None:  # TOML has no null: a key left out is how one writes it
            yield f"{field.name} = {_toml(value)}"
    for name, value in nested:
        is_array = isinstance(value, tuple)
        for table in value if is_array else (value,):
            yield ""
            yield f"[[{name}]]" if is_array else f"[{name}]"
            for field in dataclasses.fields(table):
                item = getattr(table, field.name)
                if item is not None:
                    yield f"{field.name} = {_toml(item)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    # JSON strings are TOML strings, but for DEL, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _reference_table(cls: Any) -> str:
    hints = typing.get_type_hints(cls)
    rows = ["| Key | Takes | Default | Meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(cls):
        if item_type(hints[field.name]) is not None or dataclasses.is_dataclass(hints[field.name]):
            continue
        takes = describe(hints[field.name], field.metadata)
        default = _shown_default(field.default, hints[field.name])
        meaning = str(field.metadata["help"]).replace("|", "\\|")
        rows.append(f"| `{field.name}` | {takes} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def _shown_default(default: Any, annotation: Any) -> str:
    if default is None:
        return "auto" if bool in typing.get_args(annotation) else "none"
    if default == BY_TYPE:
        return "by type"
    if isinstance(default, str | Path) and not isinstance(default, StrEnum) and not default:
        return "empty"
    return f"`{_toml(default)}`"
