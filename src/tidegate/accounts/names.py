"""Which client identifiers an account may use: the `client` lines of the rights file.

Rules: who has such a line, in their own name, by a group or by one with %u, uses identifiers that fit one of theirs. An
identifier that fits somebody's line is for nobody without.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tidegate.accounts.rights_file import RightsTable

MAX_USERS = 20_000  # whose lines are kept ready


class ClientNames:
    """Over one rights file."""

    def __init__(self, table: RightsTable) -> None:
        self._table = table
        bound = [name for names in table.client_names.values() for name in names if "%u" not in name]
        self._bound = re.compile("|".join(map(_expression, bound))) if bound else None
        self._own = lru_cache(MAX_USERS)(self._find_own)

    def may_use(self, user: str | None, client_id: str) -> bool:
        own = self._own(user)
        if own is not None:
            return own.fullmatch(client_id) is not None
        return self._bound is None or self._bound.fullmatch(client_id) is None

    def _find_own(self, user: str | None) -> re.Pattern[str] | None:
        found = [_expression(name, user) for name in self._table.names_of(user)]
        return re.compile("|".join(found)) if found else None


def _expression(name: str, user: str | None = None) -> str:
    """`*` stands for any characters; the user name is taken literally."""
    parts = name.split("%u") if user is not None else [name]
    return re.escape(user or "").join(re.escape(part).replace(r"\*", "(?s:.*)") for part in parts)
