"""SPARQL as a list of tokens: enough to see its parts, not to judge it; the store's own parser does that.

A text that cannot be cut into tokens raises `Unreadable`: whoever asked then takes the cautious way.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Unreadable(Exception):
    """Valid or not, we do not understand it."""


class Token(NamedTuple):
    """`kind`: iri, name (prefixed), var, string, number, lang, blank, word, op. `start` and `end` in characters."""

    kind: str
    text: str
    start: int
    end: int

    def is_op(self, text: str) -> bool:
        return self.kind == "op" and self.text == text

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


_PLX = r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?#@%]"
_LOCAL = rf"(?:(?:[\w:]|{_PLX})(?:(?:[\w\-:.]|{_PLX})*(?:[\w\-:]|{_PLX}))?)?"
_PATTERN: Final = re.compile(
    "|".join(
        (
            r"(?P<skip>\s+|\#[^\n\r]*)",
            r'(?P<string>"""(?:[^"\\]|\\.|"(?!""))*"""' + r"|'''(?:[^'\\]|\\.|'(?!''))*'''",
            r'"(?:[^"\\\n\r]|\\.)*"' + r"|'(?:[^'\\\n\r]|\\.)*')",
            r'(?P<iri><[^<>"{}|^`\\\x00-\x20]*>)',
            r"(?P<var>[?$]\w+)",
            r"(?P<lang>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)",
            r"(?P<blank>_:\w(?:[\w\-.]*[\w\-])?)",
            rf"(?P<name>(?:[^\W\d_](?:[\w\-.]*[\w\-])?)?:{_LOCAL})",
            r"(?P<number>[+-]?(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?)",
            r"(?P<word>[^\W\d]\w*)",
            r"(?P<op>\^\^|&&|\|\||!=|<=|>=|<<|>>|\{\||\|\}|[{}()\[\].,;=<>!+\-*/|^?~@])",
        )
    ),
    re.DOTALL,
)


UNSTABLE: Final = ("RAND", "NOW", "UUID", "STRUUID", "BNODE")
"""Functions that give something else each time they are asked."""
_HIDING: Final = re.compile(r"[#'()\[\]]")


def tokenize(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    for match in iter(_PATTERN.scanner(text).match, None):  # type: ignore[attr-defined]
        kind = match.lastgroup
        at = match.end()
        if kind != "skip":
            found.append(Token(kind, match.group(), match.start(), at))
    if at < len(text):
        raise Unreadable(f"character {text[at]!r} at {at}")
    return found


def is_ambiguous(tokens: list[Token]) -> bool:
    """Whether an IRI may be a comparison to the store's parser, `<2#>` in `(1<2#>`, and hide what follows it."""
    opened: list[str] = []
    is_begun = is_values = is_operand = hides = False  # VALUES has lists of terms, and nothing to compare
    for token in tokens:
        if token.kind == "op":
            if token.text in ("(", "{", "["):
                opened.append(token.text)
                is_values |= is_begun and token.text == "{"
            elif token.text in (")", "}", "]") and opened:
                is_values &= opened.pop() != "{"
        elif token.kind == "word":
            is_begun = token.is_word("VALUES")
        elif token.kind == "iri" and is_operand and not is_values and opened[-1:] == ["("]:
            hides |= _HIDING.search(token.text) is not None
        is_operand = token.kind != "op" or token.text in (")", "}", ">>")
    return hides


def words(tokens: list[Token]) -> set[str]:
    """Every bare word in capitals: keywords and functions."""
    return {token.text.upper() for token in tokens if token.kind == "word"}
