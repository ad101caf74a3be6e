"""What to do about a text that the store's parser refuses: its own message names a place, often behind the mistake."""

from __future__ import annotations

import re
from typing import Final

from tidegate.space.tokens import Token, Unreadable, tokenize

_READ: Final = 65_536  # characters; of more, nobody looks at a hint
_ABSOLUTE: Final = re.compile(r"<[A-Za-z][A-Za-z0-9+.\-]*:")
_UPDATES: Final = ("INSERT", "DELETE", "CLEAR", "DROP", "LOAD", "CREATE", "ADD", "MOVE", "COPY")
_QUERIES: Final = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
QUERY: Final = "check the query"
UPDATE: Final = "check the update"


def is_query(word: str) -> bool:
    return word.upper() in _QUERIES


def advice(text: str, otherwise: str) -> str:
    """A hint for the commonest mistakes; `otherwise` if it is none of them."""
    if len(text) > _READ:
        return otherwise
    try:
        tokens = tokenize(text)
    except Unreadable:
        return otherwise
    declared: set[str] = set()
    has_base = False
    verb = ""
    for before, token in zip([Token("", "", 0, 0), *tokens], tokens, strict=False):
        if before.is_word("PREFIX") and token.kind == "name":
            declared.add(token.text[:-1])
        elif token.kind == "name" and token.text.partition(":")[0] not in declared:
            prefix = token.text.partition(":")[0]
            return f"declare the prefix: PREFIX {prefix}: <…>"
        elif token.kind == "iri" and not has_base and not before.is_word("BASE") and not _ABSOLUTE.match(token.text):
            return f"{token.text[:100]} is relative: write the whole IRI, or BASE <…> before it"
        has_base |= before.is_word("BASE")
        if not verb and token.kind == "word" and not token.is_word("PREFIX", "BASE"):
            verb = token.text.upper()
    if verb in _UPDATES and otherwise == QUERY:
        return "that is an update: send it as one"
    if verb and verb not in (*_UPDATES, *_QUERIES):
        return f"it begins with {verb[:20]}, which is no word of SPARQL"
    return otherwise
