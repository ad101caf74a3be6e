"""Renders the part of Helm's templates that our chart uses, so that it can be checked without Helm.

Go templates with `if`, `else`, `with`, `range`, `define`, pipelines and the few functions below; anything else is an
error. What this accepts Helm accepts; what Helm offers beyond it the chart must not use, or this has to learn it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

BASE = "tidegate/templates"
_TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", flags=re.DOTALL)


class HelmError(Exception):
    """A template that this renderer cannot follow."""


@dataclass
class Node:
    """Text, an action, or a block with its branches."""

    kind: str
    text: str = ""
    body: list[Node] = field(default_factory=list)
    other: list[Node] = field(default_factory=list)


def tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    trim = False
    for match in _TAG.finditer(text):
        plain = text[at : match.start()]
        plain = plain.lstrip() if trim else plain
        found.append(("text", plain.rstrip() if match[1] else plain))
        if not match[2].startswith("/*"):
            found.append(("action", match[2]))
        at, trim = match.end(), bool(match[3])
    rest = text[at:]
    found.append(("text", rest.lstrip() if trim else rest))
    return found


def parse(text: str) -> list[Node]:
    root = Node("root")
    stack = [(root, root.body)]
    for kind, value in tokens(text):
        owner, into = stack[-1]
        word = value.split(" ", 1)[0] if kind == "action" else ""
        if word in ("if", "with", "range", "define"):
            node = Node(word, value.partition(" ")[2])
            into.append(node)
            stack.append((node, node.body))
        elif word == "else":
            if value != "else" or owner.kind not in ("if", "with"):
                raise HelmError(value)
            stack[-1] = (owner, owner.other)
        elif word == "end":
            stack.pop()
            if not stack:
                raise HelmError("an end too many")
        else:
            into.append(Node(kind, value))
    if len(stack) != 1:
        raise HelmError(f"{stack[-1][0].kind} has no end")
    return root.body


class Chart:
    """A chart folder with values; `render()` gives the objects it makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meta = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
        self.values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
        self._defined: dict[str, list[Node]] = {}
        self._functions: dict[str, Callable[..., Any]] = {
            "default": lambda fallback, value: value or fallback,
            "include": self._include,
            "indent": lambda width, text: _indent(width, text),
            "nindent": lambda width, text: "\n" + _indent(width, text),
            "not": lambda value: not value,
            "print": lambda *values: "".join(values),
            "sha256sum": lambda text: sha256(text.encode()).hexdigest(),
            "or": lambda *values: next((value for value in values if value), values[-1]),
            "printf": lambda form, *values: form % values,
            "quote": json.dumps,
            "toJson": json.dumps,
            "toYaml": lambda value: yaml.safe_dump(value, sort_keys=False).rstrip("\n"),
            "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
            "trunc": lambda length, text: text[:length],
        }

    def render(
        self, changes: dict[str, Any] | None = None, release: str = "plant"
    ) -> dict[str, list[dict[str, Any]]]:
        """By template file, the YAML documents it makes."""
        values = _merged(self.values, changes or {})
        top = {
            "Values": values,
            "Template": {"BasePath": BASE},
            "Release": {"Name": release, "Service": "Helm", "Namespace": "default"},
            "Chart": {
                "Name": self.meta["name"],
                "AppVersion": self.meta["appVersion"],
                "Version": self.meta["version"],
            },
        }
        for path in (self.folder / "templates").iterdir():
            nodes = self._defined[f"{BASE}/{path.name}"] = parse(path.read_text(encoding="utf-8"))
            if path.suffix == ".tpl":
                self._render(nodes, top, {})
        made = {}
        for path in sorted((self.folder / "templates").iterdir()):
            if path.suffix in (".yaml", ".txt"):
                text = self._render(parse(path.read_text(encoding="utf-8")), top, {})
                made[path.name] = (
                    [each for each in yaml.safe_load_all(text) if each]
                    if path.suffix == ".yaml"
                    else [{"text": text}]
                )
        return made

    def _include(self, name: str, dot: Any) -> str:
        return self._render(self._defined[name], dot, {})

    def _render(self, nodes: list[Node], dot: Any, names: dict[str, Any]) -> str:
        return "".join(self._one(node, dot, names) for node in nodes)

    def _one(self, node: Node, dot: Any, names: dict[str, Any]) -> str:
        if node.kind == "text":
            return node.text
        if node.kind == "action":
            return _shown(self._pipeline(node.text, dot, names))
        if node.kind == "define":
            self._defined[json.loads(node.text)] = node.body
            return ""
        if node.kind == "range":
            found = re.fullmatch(r"\$(\w+), \$(\w+) := (.*)", node.text)
            if found is None:
                raise HelmError(node.text)
            values = self._pipeline(found[3], dot, names)
            return "".join(
                self._render(node.body, dot, {**names, found[1]: key, found[2]: value})
                for key, value in sorted(values.items())
            )
        value = self._pipeline(node.text, dot, names)
        if not value:
            return self._render(node.other, dot, names)
        return self._render(node.body, value if node.kind == "with" else dot, names)

    def _pipeline(self, text: str, dot: Any, names: dict[str, Any]) -> Any:
        result: list[Any] = []
        for part in text.split(" | "):
            result = [self._call(part, dot, names, result)]
        return result[0]

    def _call(self, text: str, dot: Any, names: dict[str, Any], piped: list[Any]) -> Any:
        inner: list[Any] = []

        def hold(match: re.Match[str]) -> str:
            inner.append(self._pipeline(match[1], dot, names))
            return f"@{len(inner) - 1}"

        words = shlex.split(re.sub(r"\(([^()]*)\)", hold, text), posix=False)
        values = [
            inner[int(word[1:])] if word.startswith("@") else self._value(word, dot, names) for word in words
        ]
        if callable(values[0]):
            return values[0](*values[1:], *piped)
        if len(values) != 1 or piped:
            raise HelmError(text)
        return values[0]

    def _value(self, word: str, dot: Any, names: dict[str, Any]) -> Any:
        if word in self._functions:
            return self._functions[word]
        if word[0] in '"0123456789':
            return json.loads(word)
        if word.startswith("$"):
            return names[word[1:]]
        if not word.startswith("."):
            raise HelmError(word)
        value = dot
        for part in filter(None, word.split(".")):
            value = value[part]  # a name that the values lack is a fault of the chart
        return value


def _indent(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        is_table = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if is_table else value
    return merged
