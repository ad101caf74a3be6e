"""How deep and how long a text may be: the parsers call themselves for each step, and would end the process.

All of it takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tidegate.space.errors import SpaceError, malformed, unsupported
from tidegate.space.tokens import Token

DEPTH: Final = 100  # of brackets, elements and triple terms
UNREAD: Final = 300  # brackets; the parser died of 1000 calls of a function, each in another
# The parser died of 2614 MINUS, and of less than 8000 of the others, with the usual stack of 8 MiB.
OPERATORS: Final = 1000
_OPENING: Final = frozenset(("(", "[", "{", "<<", "{|"))
_CLOSING: Final = frozenset((")", "]", "}", ">>", "|}"))
_SYMBOLS: Final = frozenset(("+", "-", "*", "/", "|", "^", "||", "&&", "!", "?"))
_CHAINED: Final = ("UNION", "MINUS", "OPTIONAL", "LATERAL", "BIND", "VALUES", "FILTER", "EXISTS", "AS")
_ANY_OPERATOR: Final = re.compile(rf"[-+*/|&^!?]|{'|'.join(_CHAINED)}", re.IGNORECASE)

_JSON: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)
# What can hold a bracket that is none, and the brackets of triple terms.
_TURTLE: Final = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)' + rb"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\Z)"
    rb'|"(?:[^"\\]|\\.)*+(?:"|\Z)' + rb"|'(?:[^'\\]|\\.)*+(?:'|\Z)"
    rb"|#[^\n\r]*+|\\.|<<|>>|<[^<>\s]*+>",
    re.DOTALL,
)
_XML: Final = re.compile(
    rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)"
    rb"""|</|<(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+>|<""",
    re.DOTALL,
)
_DECLARATION: Final = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)


def check_brackets(brackets: Iterable[str]) -> None:
    depth = 0
    for bracket in brackets:
        if bracket in _OPENING:
            depth += 1
            if depth > DEPTH:
                raise unsupported(f"brackets more than {DEPTH} deep", "write it with fewer")
        elif bracket in _CLOSING:
            depth -= 1


def check_brackets_of(text: str) -> None:
    """The same of a text whose tokens are not known: a closing bracket may be in a string or a comment."""
    check_brackets(text)
    if sum(map(text.count, "([{")) > UNREAD:
        raise unsupported(f"more than {UNREAD} brackets in what cannot be read, deep or not", "write it plainly")


def check_operators(tokens: Iterable[Token]) -> None:
    """To be asked of a query, or of one operation of an update that is no data: data may have many numbers."""
    count = 0
    last: Token | None = None
    is_values = False  # its rows are terms, and `-1 -2` are two of them
    for token in tokens:
        if token.kind == "word":
            word = token.text.upper()
            is_values = word == "VALUES"
            count += any(each in word for each in _CHAINED)
        elif token.kind == "op":
            count += token.text in _SYMBOLS
            is_values &= token.text != "}"
        elif token.kind == "number" and token.text[0] in "+-" and not is_values:
            # After an operand, its sign is the operator.
            count += last is not None and (last.kind != "op" or last.text == ")")
        last = token
    _check_count(count)


def check_operators_of(text: str) -> None:
    """The same of a text whose tokens are not known: whatever may be one counts."""
    _check_count(sum(1 for _ in _ANY_OPERATOR.finditer(text)))


def _check_count(count: int) -> None:
    if count > OPERATORS:
        raise unsupported(f"more than {OPERATORS} operators", "write it with fewer: IN, VALUES, or several queries")


def check_json(data: bytes) -> None:
    """The time to read JSON-LD grows with the square of its depth."""
    depth = 0
    for found in _JSON.finditer(data):
        bracket = found[0]
        if bracket in (b"{", b"["):
            depth += 1
            if depth > DEPTH:
                raise malformed(f"JSON-LD nested more than {DEPTH} deep", "write it flatter, or as Turtle")
        elif bracket in (b"}", b"]"):
            depth -= 1


def check_turtle(data: bytes) -> None:
    """Of Turtle and N-Triples. Lists and blank nodes may be as deep as they like: they are triples of their own."""
    if b"<<" not in data:
        return
    depth = 0
    for found in _TURTLE.finditer(data):
        bracket = found[0]
        if bracket == b"<<":
            depth += 1
            if depth > DEPTH:
                raise too_deep()
        elif bracket == b">>":
            depth -= 1


def check_xml(data: bytes) -> None:
    """Entities can grow without end when they are put in; and the time to read grows with the square of the depth."""
    if _DECLARATION.search(data) is not None:
        raise malformed("RDF/XML with a DOCTYPE or an ENTITY", "write it without entities, or as Turtle")
    depth = 0
    for found in _XML.finditer(data):
        tag = found[0]
        if tag == b"</":
            depth -= 1
        elif tag[1:2] not in (b"!", b"?") and not tag.endswith(b"/>"):
            depth += 1
            if depth > DEPTH:
                raise malformed(f"RDF/XML nested more than {DEPTH} deep", "write it flatter, or as Turtle")


def too_deep() -> SpaceError:
    return malformed(f"triple terms nested more than {DEPTH} deep", "write it with fewer")
