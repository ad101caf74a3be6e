"""Finds SERVICE in the text itself: the store's parser cuts some texts in other places than our tokens do.

It needs no space around a keyword (`trueSERVICE`, `SERVICESILENT`), and reads `1<2#>` as a comparison and a comment.
So this looks at every place where it could begin a SERVICE, in strings and comments, too. Takes time in proportion to
the text: what was skipped once is not read again.
"""

from __future__ import annotations

import re
from typing import Final

# Not at the end of a name or of a variable; numbers and truth values end where the keyword begins.
_WORD: Final = re.compile(r"(?:(?<![\w:?$@])|(?<=\d)|(?<=true)|(?<=false))SERVICE", re.IGNORECASE)
_SILENT: Final = re.compile("SILENT", re.IGNORECASE)
_SPACE: Final = re.compile(r"\s*+")
_COMMENTS: Final = re.compile(r"(?:\s++|#[^\n\r]*+)*+")
_IRI: Final = re.compile(r"<[^<>\s]*+>")
# Names have more characters than Python's words, U+203F among them: whatever ends none is taken.
_VARIABLE: Final = re.compile(r"[^\s{#]*+")
_PREFIX: Final = re.compile(r"[^\s:{#<>\"'()]*+")
_LOCAL: Final = re.compile(r":(?:[^\s#{\\]|\\.)*+", re.DOTALL)


def has_service(text: str) -> bool:
    """Whether any parser could find a SERVICE in it."""
    look = _Look(text)
    return any(look.is_service(match.end()) for match in _WORD.finditer(text))


class _Run:
    """The end of a run of characters; all that begin within one end together."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._pattern = pattern
        self._text = text
        self._begin = self._end = 0

    def end(self, at: int) -> int:
        if not self._begin <= at < self._end:
            found = self._pattern.match(self._text, at)
            self._begin, self._end = at, at if found is None else found.end()
        return self._end


class _Look:
    def __init__(self, text: str) -> None:
        self._text = text
        self._comments = _Run(_COMMENTS, text)
        self._variable = _Run(_VARIABLE, text)
        self._prefix = _Run(_PREFIX, text)
        self._local = _Run(_LOCAL, text)

    def is_service(self, at: int) -> bool:
        """Whether what follows the word can be its operands: a name, then a group."""
        at = self._skip(at)
        silent = _SILENT.match(self._text, at)
        return self._is_name_and_group(at) or (
            silent is not None and self._is_name_and_group(self._skip(silent.end()))
        )

    def _is_name_and_group(self, at: int) -> bool:
        found = _IRI.match(self._text, at)
        if found is not None:
            end = found.end()
        elif self._text.startswith(("?", "$"), at):
            end = self._variable.end(at)
        else:
            colon = self._prefix.end(at)
            if not self._text.startswith(":", colon):
                return False
            end = self._local.end(colon)
        return self._text.startswith("{", self._skip(end))

    def _skip(self, at: int) -> int:
        at = _SPACE.match(self._text, at).end()  # type: ignore[union-attr]
        return self._comments.end(at) if self._text.startswith("#", at) else at
