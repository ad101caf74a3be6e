"""SPARQL as a list of tokens: enough to see its parts, not to judge it; the store's own parser does that.

A text that cannot be cut into tokens raises `Unreadable`: whoever asked then takes the cautious way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
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
_NAMELESS = (
    r"(?P<number>[+-]?(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?)",
    r"(?P<word>[^\W\d]\w*)",
    r"(?P<op>\^\^|&&|\|\||!=|<=|>=|<<|>>|\{\||\|\}|[{}()\[\].,;=<>!+\-*/|^?~@])",
)
_PATTERN: Final = re.compile(
    "|".join(
        (
            r"(?P<skip>\s+|\#[^\n\r]*)",
            r'(?P<string>"""(?:[^"\\]|\\.|"(?!""))*+"""' + r"|'''(?:[^'\\]|\\.|'(?!''))*+'''",
            r'"(?:[^"\\\n\r]|\\.)*+"' + r"|'(?:[^'\\\n\r]|\\.)*+')",
            r'(?P<iri><[^<>"{}|^`\\\x00-\x20]*+>)',
            r"(?P<var>[?$]\w+)",
            r"(?P<lang>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)",
            r"(?P<blank>_:\w(?:[\w\-.]*[\w\-])?)",
            rf"(?P<name>(?:[^\W\d_][\w\-.]*+(?<!\.))?:{_LOCAL})",
            r"(?P<run>[^\W\d_][\w\-.]*+)",
            *_NAMELESS,
        )
    ),
    re.DOTALL,
)
_INSIDE: Final = re.compile("|".join(_NAMELESS))


UNSTABLE: Final = ("RAND", "NOW", "UUID", "STRUUID", "BNODE")
"""Functions that give something else each time they are asked."""
_SHORT: Final = 65_536  # characters; the longest watch
_HIDING: Final = re.compile(r"[#'()\[\]]")


def tokenize(text: str) -> list[Token]:
    """Takes time in proportion to the text. The list is shared: not to be changed."""
    return _short(text) if len(text) <= _SHORT else _cut(text)


def _cut(text: str) -> list[Token]:
    found: list[Token] = []
    at = last = 0
    while at < len(text):
        for match in iter(_PATTERN.scanner(text, at).match, None):  # type: ignore[attr-defined]
            kind = match.lastgroup
            at = match.end()
            if kind == "run":
                at = _cut_run(text, match.start(), at, found)
                break
            if kind != "skip":
                found.append(Token(kind, match.group(), match.start(), at))
        if at == last:
            raise Unreadable(f"character {text[at]!r} at {at}")
        last = at
    return found


def _cut_run(text: str, at: int, end: int, found: list[Token]) -> int:
    """What looked like a prefix up to `end` and has no colon there: no name begins in it, so none is looked for.

    To look for one at each letter of `a.a.a.a` would take time with the square of its length.
    """
    while at < end:
        match = _INSIDE.match(text, at)
        if match is None:
            raise Unreadable(f"character {text[at]!r} at {at}")
        at = match.end()
        found.append(Token(match.lastgroup or "", match.group(), match.start(), at))
    return at


_short = lru_cache(maxsize=4)(_cut)  # one text is read several times when a watch begins


def is_ambiguous(tokens: list[Token]) -> bool:
    """Whether an IRI may be a comparison to the store's parser, `<2#>` in `(1<2#>`, and hide what follows it."""
    opened: list[str] = []
    is_begun = is_values = is_operand = hides = False  # VALUES and DATA have terms, and nothing to compare
    for token in tokens:
        if token.kind == "op":
            if token.text in ("(", "{", "["):
                opened.append(token.text)
                is_values |= is_begun and token.text == "{"
            elif token.text in (")", "}", "]") and opened:
                is_values &= opened.pop() != "{"
        elif token.kind == "word":
            is_begun = token.is_word("VALUES", "DATA")
        elif token.kind == "iri" and is_operand and not is_values and opened[-1:] == ["("]:
            hides |= _HIDING.search(token.text) is not None
        is_operand = token.kind != "op" or token.text in (")", "}", ">>")
    return hides


def words(tokens: list[Token]) -> set[str]:
    """Every bare word in capitals: keywords and functions."""
    return {token.text.upper() for token in tokens if token.kind == "word"}


def mentioned(tokens: list[Token], among: Iterable[str]) -> set[str]:
    """Those of these keywords that the store may read: it needs no space between two, as in `FILTERNOW()`, `LIMIT3`."""
    found = words(tokens)
    return {each for each in among if any(each in word for word in found)}
