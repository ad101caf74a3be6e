"""SPARQL updates as differences: each operation becomes the CONSTRUCT queries that give what it removes and adds.

The store could execute an update by itself, but would not say what it changed, and standing queries live on that. The
texts of templates and groups are passed on as they are; the store's parser judges them as part of a CONSTRUCT.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyoxigraph import RdfFormat, Store, Triple, parse

from tidegate.space.advice import UPDATE, advice, is_query
from tidegate.space.bounds import check_operators
from tidegate.space.errors import Fault, SpaceError, malformed, unsupported
from tidegate.space.store import TripleStore, check_offered, first_line
from tidegate.space.tokens import UNSTABLE, Token, Unreadable, mentioned, tokenize

Construct = Callable[[str], list[Triple]]
OPERATIONS: Final = 100_000  # of one update
PROLOGUES: Final = 16 * 1024 * 1024  # characters: each operation is read together with all prefixes before it
# INSERT DATA of plain terms, as nearly all of it is: no brackets, no variables, short strings without escapes. What
# looks like this is the same in Turtle, unless it has a directive, so there is no need to look at every token.
_STRING = r'"[^"\\\n\r]*"(?!")(?:@[A-Za-z]+(?:-[A-Za-z0-9]+)*)?'
_PLAIN = re.compile(rf"""\s*INSERT\s+DATA\s*(\{{(?:[^{{}}()\[\]?$@"'\\]|{_STRING})*+\}})\s*+;?\s*+""", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\b(?:prefix|base|version)\b|<<", re.IGNORECASE)
_SAME = frozenset((".", ",", ";", "^^"))
_OFFERED = "INSERT DATA, DELETE DATA, DELETE WHERE, DELETE … INSERT … WHERE and CLEAR"


@dataclass(slots=True, kw_only=True, frozen=True)
class Operation:
    """CONSTRUCT queries for what is removed and added, "" for none; or data, or everything.

    All of them come after the `prologue`, which operations share. `data` is the group of INSERT DATA or DELETE DATA,
    `turtle` the same where Turtle writes it alike, which is quicker to read. Data look at nothing, so they take no
    time worth limiting.
    """

    remove: str = ""
    add: str = ""
    prologue: str = ""
    data: str = ""
    turtle: str = ""
    is_delete: bool = False
    is_clear: bool = False

    @property
    def is_data(self) -> bool:
        return self.data != ""

    def evaluate(self, store: TripleStore, construct: Construct) -> tuple[list[Triple], list[Triple]]:
        """What it removes and adds, the store being as it is."""
        if self.is_clear:
            return list(store), []
        if self.is_data:
            triples = self._data()
            return (triples, []) if self.is_delete else ([], triples)
        removed, added = ([] if not each else construct(each) for each in (self.removes, self.adds))
        return removed, added

    @property
    def removes(self) -> str:
        """The whole query, "" for none."""
        return self.remove and self.prologue + self.remove

    @property
    def adds(self) -> str:
        return self.add and self.prologue + self.add

    def _data(self) -> list[Triple]:
        if self.turtle:
            try:
                found = parse(self.prologue + self.turtle, RdfFormat.TURTLE, rename_blank_nodes=True)
                return [each.triple for each in found]
            except SyntaxError:
                pass  # the store's parser has the last word, and says what is wrong
        store = Store()
        try:
            if self.is_delete:
                store.update(f"{self.prologue}DELETE DATA {self.data}")  # only to have it judged
            store.update(f"{self.prologue}INSERT DATA {self.data}")
        except SyntaxError as error:
            hint = advice(f"{self.prologue}INSERT DATA {self.data}", UPDATE)
            raise malformed(f"not a SPARQL update: {first_line(error)}", hint) from None
        return [each.triple for each in store]


def read_update(text: str) -> list[Operation]:
    """Raises `SpaceError` for what is no update, or none that a space offers."""
    plain = _PLAIN.fullmatch(text)
    if plain is not None and _DIRECTIVE.search(text) is None:
        group = plain[1]
        data = group[1:-1].rstrip()
        return [Operation(data=group, turtle=data if data.endswith(".") else f"{data}\n.")]
    try:
        tokens = tokenize(text)
        check_offered(text, tokens)
        found = _Reader(text, tokens).operations()
    except (Unreadable, IndexError):
        raise malformed("not a SPARQL update", f"a space offers {_OFFERED}") from None
    return found


class _Reader:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._declared: list[str] = []  # since the last operation
        self._prologue = ""
        self._read = 0  # characters of prologues, each time they are read

    @property
    def _is_over(self) -> bool:
        return self._at >= len(self._tokens)

    def operations(self) -> list[Operation]:
        found: list[Operation] = []
        while True:
            self._read_prologue()
            if self._is_over:
                return found
            self._declare(len(found))
            found.append(self._operation())
            if self._is_over:
                return found
            if not self._tokens[self._at].is_op(";"):
                raise self._unexpected()
            self._at += 1

    def _read_prologue(self) -> None:
        while not self._is_over and self._tokens[self._at].is_word("PREFIX", "BASE"):
            first = self._tokens[self._at]
            self._at += 2 if first.is_word("BASE") else 3
            self._declared.append(self._text[first.start : self._tokens[self._at - 1].end] + "\n")

    def _declare(self, operations: int) -> None:
        if self._declared:
            self._prologue += "".join(self._declared)
            self._declared.clear()
        self._read += len(self._prologue)
        if operations >= OPERATIONS:
            raise SpaceError(Fault.TOO_LARGE, f"more than {OPERATIONS} operations in one update", hint="split it")
        if self._read > PROLOGUES:
            raise SpaceError(
                Fault.TOO_LARGE,
                "too many prefixes for so many operations: each is read with all before it",
                hint="write one INSERT DATA with all triples, or split the update",
            )

    def _operation(self) -> Operation:
        first = self._at
        found = self._read_operation()
        if not found.is_data:
            check_operators(self._tokens[first : self._at])
        return found

    def _read_operation(self) -> Operation:
        token = self._tokens[self._at]
        self._at += 1
        if token.is_word("INSERT"):
            if self._skip("DATA"):
                return self._data(is_delete=False)
            template = self._braces()
            return self._changing(add=_construct(template, self._where()))
        if token.is_word("DELETE"):
            return self._delete()
        if token.is_word("CLEAR", "DROP"):
            self._skip("SILENT")
            if self._skip("DEFAULT", "ALL"):
                return Operation(is_clear=True)
        if token.kind == "word" and is_query(token.text):
            raise unsupported(f"{token.text.upper()} is no update", "that is a query: send it as one")
        if token.kind == "word":
            raise unsupported(f"{token.text.upper()} is not offered", f"a space offers {_OFFERED}")
        self._at -= 1
        raise self._unexpected()

    def _delete(self) -> Operation:
        if self._skip("DATA"):
            return self._data(is_delete=True)
        if self._skip("WHERE"):
            group = self._braces()
            return self._changing(remove=_construct(group, group))
        first = self._at
        removed = self._braces()
        added = self._braces() if self._skip("INSERT") else ""
        where = self._where()
        if added:
            self._check_stable(first)
        return self._changing(
            remove=_construct(removed, where), add=_construct(added, where) if added else ""
        )

    def _changing(self, remove: str = "", add: str = "") -> Operation:
        return Operation(prologue=self._prologue, remove=remove, add=add)

    def _check_stable(self, first: int) -> None:
        """What is removed and what is added are asked for one after the other, and must be of one mind."""
        for word in UNSTABLE:
            if word in mentioned(self._tokens[first : self._at], UNSTABLE):
                raise unsupported(
                    f"{word} is not offered where something is removed and added", "write two operations"
                )

    def _skip(self, *words: str) -> bool:
        if self._is_over or not self._tokens[self._at].is_word(*words):
            return False
        self._at += 1
        return True

    def _where(self) -> str:
        if not self._is_over and self._tokens[self._at].is_word("USING"):
            raise unsupported("USING is not offered", "a space is one graph")
        if not self._skip("WHERE"):
            raise self._unexpected()
        return self._braces()

    def _braces(self) -> str:
        """The text of a balanced group, braces included."""
        first = self._tokens[self._at]
        if not first.is_op("{"):
            raise self._unexpected()
        depth = 0
        while True:
            token = self._tokens[self._at]
            self._at += 1
            depth += token.is_op("{") - token.is_op("}")
            if depth == 0:
                return self._text[first.start : token.end]

    def _data(self, *, is_delete: bool) -> Operation:
        first = self._at
        group = self._braces()
        turtle = self._turtle(first, group, is_delete)
        return Operation(prologue=self._prologue, data=group, turtle=turtle, is_delete=is_delete)

    def _turtle(self, first: int, group: str, is_delete: bool) -> str:
        """A group of data as Turtle; "" if it has anything that the two languages see differently."""
        last = self._tokens[first]
        for token in self._tokens[first + 1 : self._at - 1]:
            kind = token.kind
            if kind == "op":
                if token.text not in _SAME:
                    return ""
            elif kind == "word":
                if token.text not in ("a", "true", "false"):
                    return ""
            elif (
                kind == "var"
                or (kind == "lang" and last.kind != "string")
                or (kind == "blank" and is_delete)
            ):
                return ""
            last = token
        return f"{group[1:-1]}{'' if last.text == '.' else '.'}"

    def _unexpected(self) -> SpaceError:
        near = self._tokens[self._at].text if not self._is_over else "the end"
        return malformed(f"not a SPARQL update: {near!r} is not expected here", f"a space offers {_OFFERED}")


def _construct(template: str, where: str) -> str:
    return f"CONSTRUCT {template} WHERE {where}"
