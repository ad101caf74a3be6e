"""Triple masks: JSON such as {"p": "<http://e/p>"}, which stands for a query with one pattern."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tidegate.space.errors import malformed

_IRI: Final = r"<[^<>\"{}|^`\\\s]*>"
_STRING: Final = r"\"(?:[^\"\\\n\r]|\\.)*\"|'(?:[^'\\\n\r]|\\.)*'"
_NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# One term and no more: its time is in proportion to the length, whatever is sent.
_TERM: Final = re.compile(
    rf"{_IRI}|(?:{_STRING})(?:@[A-Za-z0-9-]+|\^\^{_IRI})?|{_NUMBER}|true|false|<<.*>>", re.DOTALL
)


def mask_query(text: str) -> str:
    """The query that a mask stands for; raises `SpaceError` for what is none."""
    try:
        mask = json.loads(text)
        unknown = set(mask) - {"s", "p", "o"}
        values = {name: mask.get(name) for name in ("s", "p", "o")}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise malformed('a mask is JSON such as {"s": null, "p": "<http://e/p>", "o": null}') from None
    if unknown:
        raise malformed(f"a mask has s, p and o, not {min(unknown)!r}")
    terms = {name: f"?{name}" if value is None else _term(name, value) for name, value in values.items()}
    chosen = " ".join(f"?{name}" for name, value in values.items() if value is None) or "*"
    return f"SELECT {chosen} WHERE {{ {terms['s']} {terms['p']} {terms['o']} }}"


def _term(name: str, value: Any) -> str:
    """Of what is not null: "", 0 and false are no wish for everything."""
    hint = 'write it as in SPARQL: <urn:is>, "text" or 5'
    if not isinstance(value, str | int | float):
        raise malformed(f"{name} of the mask is neither a string, a number, true nor false", hint)
    term = value if isinstance(value, str) else json.dumps(value)
    is_type = name == "p" and term == "a"
    if not is_type and not _TERM.fullmatch(term):
        raise malformed(f"{name} of the mask is {term[:100]!r}, which is no term", hint)
    return term
