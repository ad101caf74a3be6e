"""What a query consists of: its form, what it selects, and every triple pattern in it.

The patterns say which changes can matter: a triple that matches none of them cannot change the answer, whatever else
the query does. `is_plain` marks those that are nothing but patterns and filters: their answer can be kept up to date
from the changes alone. The walk is cautious: what it does not understand makes it `is_wild`, and then every change
matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidegate.space.tokens import Token, Unreadable, is_ambiguous, mentioned, tokenize, words

Slot = tuple[Token, ...]
"""The tokens of one term of a pattern; a literal has up to three."""

_END: Final = Token("op", "", -1, -1)
_STARTS: Final = ("iri", "name", "var", "string", "number", "blank")


@dataclass(slots=True)
class Outline:
    """`selected` are names without question mark, None for all; offsets are characters of the text."""

    text: str
    form: str = ""
    is_distinct: bool = False
    selected: list[str] | None = None
    prologue: str = ""
    group: str = ""
    patterns: list[tuple[Slot, Slot, Slot]] = field(default_factory=list)
    predicates: list[Slot] = field(default_factory=list)  # of paths: any triple with one of them may matter
    has_filter: bool = False
    is_plain: bool = True
    is_wild: bool = False
    words: set[str] = field(default_factory=set)
    tokens: list[Token] | None = None  # unless it cannot be cut into them, or in two ways
    variables: list[str] = field(default_factory=list)  # of the patterns, in order of appearance

    @property
    def is_one_pattern(self) -> bool:
        """Nothing to join and nothing to compute: each triple that matches is a row, and none is passed over."""
        is_plain = self.form == "SELECT" and self.is_plain and not self.is_wild and "ORDER" not in self.words
        if not is_plain or len(self.patterns) != 1 or self.has_filter or self.predicates:
            return False
        names = [slot[0].text[1:] for slot in self.patterns[0] if slot[0].kind == "var"]
        return len(set(names)) == len(names)

    def mentions(self, among: Iterable[str]) -> list[str]:
        """Those of these keywords that it may have, in their order; rather too many if it cannot be read."""
        if self.tokens is not None:
            found = mentioned(self.tokens, among)
        else:
            capitals = self.text.upper()
            found = {each for each in among if each in capitals}
        return [each for each in among if each in found]


def outline(text: str) -> Outline:
    """Reads a query that the store has accepted."""
    found = Outline(text=text)
    try:
        tokens = tokenize(text)
        found.words = words(tokens)
        is_clear = not is_ambiguous(tokens)
        found.tokens = tokens if is_clear else None
        _Walk(tokens, found).query()
        if not is_clear:
            raise Unreadable("it can be read in two ways")
    except (Unreadable, IndexError, RecursionError):
        found.is_wild, found.is_plain = True, False
    return found


class _Walk:
    """One pass over the tokens."""

    def __init__(self, tokens: list[Token], found: Outline) -> None:
        self._tokens = [*tokens, _END]
        self._at = 0
        self._found = found

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def query(self) -> None:
        found = self._found
        while self._token.is_word("PREFIX", "BASE", "VERSION"):
            self._at += 2 if self._token.is_word("BASE", "VERSION") else 3
        start = self._token.start
        found.prologue = found.text[:start]
        found.form = self._take().text.upper()
        if found.form == "SELECT":
            self._selection()
        while not self._token.is_op("{"):
            if self._token is _END:
                raise Unreadable("no group")
            if self._token.is_word("FROM"):
                found.is_plain = False
            self._at += 1
        if found.form == "CONSTRUCT" and not self._tokens[self._at - 1].is_word("WHERE"):
            # Only the group is matched; the template comes before it.
            self._balanced("{", "}")
            while not self._token.is_op("{"):
                self._at += 1
        begin = self._token.start
        self._group()
        found.group = found.text[begin : self._tokens[self._at - 1].end]
        self._modifiers()

    def _selection(self) -> None:
        found = self._found
        if self._token.is_word("DISTINCT", "REDUCED"):
            found.is_distinct = self._take().is_word("DISTINCT")
        if self._token.is_op("*"):
            self._at += 1
            return
        found.selected = []
        while self._token.kind == "var" or self._token.is_op("("):
            if self._token.kind == "var":
                found.selected.append(self._take().text[1:])
            else:
                found.is_plain = False
                self._balanced("(", ")")

    def _modifiers(self) -> None:
        """ORDER BY means nothing for a set of answers; everything else needs the whole answer."""
        if self._token is _END:
            return
        if not self._token.is_word("ORDER"):
            self._found.is_plain = False
        while self._token is not _END:
            if self._token.is_word("GROUP", "HAVING", "LIMIT", "OFFSET", "VALUES"):
                self._found.is_plain = False
            if self._token.is_op("{") and not self._tokens[self._at - 1].is_op(")"):
                self._found.is_plain = False
                self._group()
            else:
                self._at += 1

    def _balanced(self, opening: str, closing: str) -> None:
        """Skip a bracket with all in it; groups inside, as of EXISTS, are walked."""
        depth = 0
        while True:
            token = self._token
            if token is _END:
                raise Unreadable("brackets do not close")
            if token.is_op("{") and opening != "{":
                self._found.is_plain = False
                self._group()
                continue
            self._at += 1
            depth += token.is_op(opening) - token.is_op(closing)
            if depth == 0:
                return

    def _group(self) -> None:
        found = self._found
        if not self._take().is_op("{"):
            raise Unreadable("no group")
        while not self._token.is_op("}"):
            token = self._token
            if token is _END:
                raise Unreadable("a group does not close")
            if token.is_op("."):
                self._at += 1
            elif token.is_op("{"):
                found.is_plain = False
                self._group()
            elif token.is_word("FILTER"):
                self._at += 1
                self._filter()
            elif token.is_word("SELECT"):
                found.is_plain = False
                self._subselect()
            elif token.is_word("BIND"):
                found.is_plain = False
                self._at += 1
                self._balanced("(", ")")
            elif token.is_word("VALUES"):
                found.is_plain = False
                self._at += 1
                while not self._token.is_op("{"):
                    self._at += 1
                self._balanced("{", "}")
            elif token.is_word("OPTIONAL", "UNION", "MINUS"):
                found.is_plain = False
                self._at += 1
            elif token.kind == "word" and not token.is_word("TRUE", "FALSE"):
                raise Unreadable(token.text)
            else:
                self._triples()
        self._at += 1

    def _filter(self) -> None:
        self._found.has_filter = True
        while not self._token.is_op("(") and not self._token.is_op("{"):
            if self._token is _END:
                raise Unreadable("a filter does not end")
            self._at += 1  # a function's name, or NOT EXISTS
        if self._token.is_op("{"):
            self._found.is_plain = False
            self._group()
        else:
            self._balanced("(", ")")

    def _subselect(self) -> None:
        """Everything up to the end of its group, which is left for the caller."""
        while not self._token.is_op("}"):
            if self._token is _END:
                raise Unreadable("a subquery does not end")
            if self._token.is_op("{"):
                self._group()
            elif self._token.is_op("("):
                self._balanced("(", ")")
            else:
                self._at += 1

    def _triples(self) -> None:
        subject = self._node()
        if self._token.is_op(".") or self._token.is_op("}"):
            return  # a [ … ] alone
        self._properties(subject)

    def _properties(self, subject: Slot) -> None:
        while True:
            verb = self._verb()
            while True:
                obj = self._node()
                if verb is not None:
                    self._add(subject, verb, obj)
                if not self._token.is_op(","):
                    break
                self._at += 1
            if not self._token.is_op(";"):
                return
            while self._token.is_op(";"):
                self._at += 1
            if self._token.is_op(".") or self._token.is_op("}") or self._token.is_op("]"):
                return

    def _add(self, subject: Slot, verb: Slot, obj: Slot) -> None:
        found = self._found
        found.patterns.append((subject, verb, obj))
        for slot in (subject, verb, obj):
            if slot[0].kind == "var" and slot[0].text[1:] not in found.variables:
                found.variables.append(slot[0].text[1:])

    def _verb(self) -> Slot | None:
        """The predicate; None after a path, whose predicates are noted."""
        token = self._token
        if token.kind == "var":
            self._at += 1
            return (token,)
        following = self._tokens[self._at + 1]
        if following.kind == "number" and following.text.startswith("+"):
            raise Unreadable("to the store, the sign belongs to the predicate: it is a path")
        is_path = token.kind == "op" or (
            following.kind == "op" and following.text in ("/", "|", "*", "+", "?")
        )
        if not is_path:
            if token.kind in ("iri", "name") or (token.kind == "word" and token.text == "a"):
                self._at += 1
                return (token,)
            raise Unreadable(token.text)
        self._found.is_plain = False
        self._path()
        return None

    def _path(self) -> None:
        """Alternatives and sequences of steps; what can match a term itself makes every change matter."""
        while True:
            if self._token.is_op("^"):
                self._at += 1
            token = self._take()
            if token.is_op("("):
                self._path()
                if not self._take().is_op(")"):
                    raise Unreadable("a path does not close")
            elif token.is_op("!"):
                self._found.is_wild = True
                if self._token.is_op("("):
                    self._balanced("(", ")")
                else:
                    self._at += 2 if self._token.is_op("^") else 1
            elif token.kind in ("iri", "name") or (token.kind == "word" and token.text == "a"):
                self._found.predicates.append((token,))
            else:
                raise Unreadable(token.text)
            if self._token.kind == "op" and self._token.text in ("*", "+", "?"):
                self._found.is_wild |= self._take().text in ("*", "?")
            if not (self._token.is_op("/") or self._token.is_op("|")):
                return
            self._at += 1

    def _node(self) -> Slot:
        token = self._take()
        if token.is_op("["):
            self._found.is_plain = False
            blank = (Token("blank", "[]", token.start, token.end),)
            if not self._token.is_op("]"):
                self._properties(blank)
            if not self._take().is_op("]"):
                raise Unreadable("a blank node does not close")
            return blank
        if token.is_op("("):
            # A list is patterns of its own; rare in what is watched.
            self._found.is_plain, self._found.is_wild = False, True
            self._at -= 1
            self._balanced("(", ")")
            return (Token("blank", "()", token.start, token.end),)
        if token.kind == "blank":
            self._found.is_plain = False
            return (token,)
        if token.kind == "string":
            if self._token.kind == "lang":
                return (token, self._take())
            if self._token.is_op("^^"):
                return (token, self._take(), self._take())
            return (token,)
        if token.kind in _STARTS or token.is_word("TRUE", "FALSE"):
            return (token,)
        raise Unreadable(token.text)
