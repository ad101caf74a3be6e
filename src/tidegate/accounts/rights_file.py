"""The rights file: who may read and write which topics. Its lines are those of Mosquitto's acl_file, and some more.

    # before any user or group: for clients without user name
    topic read public/#

    user ada
    topic readwrite plant/1/#
    topic deny plant/1/keys/#

    group operators
    member ada bob
    topic read plant/#

    # for everyone, wherever it stands; %u is the user name, %c the client identifier
    pattern readwrite devices/%u/#

    # which client identifiers; %u makes it a line for every user
    user ada
    client pump-*
    client %u-*

`topic` and `pattern` take `read`, `write`, `readwrite`, `deny`, `deny-read` or `deny-write`, then a filter up to the
end of the line; a filter alone, without blanks, means `readwrite`. Nothing in the file depends on the order of
its rules: what no rule allows is denied, and a rule that denies wins over any that allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Flag
from pathlib import Path

from tidegate.accounts.errors import AccountsError
from tidegate.accounts.filters import levels_of
from tidegate.accounts.password_file import check_user_name
from tidegate.mqtt.errors import MQTTError


class Access(Flag):
    """What one may do with a topic."""

    READ = 1
    WRITE = 2


BOTH = Access.READ | Access.WRITE
WORDS: dict[str, tuple[Access, bool]] = {
    "read": (Access.READ, False),
    "write": (Access.WRITE, False),
    "readwrite": (BOTH, False),
    "deny": (BOTH, True),
    "deny-read": (Access.READ, True),
    "deny-write": (Access.WRITE, True),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line: `topic_filter` of a pattern may hold %u and %c."""

    access: Access
    is_denied: bool
    topic_filter: str

    @property
    def is_pattern(self) -> bool:
        return "%u" in self.topic_filter or "%c" in self.topic_filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whose a line is: one of both, or of clients without user name."""

    user: str = ""
    group: str = ""


ANONYMOUS = Holder()
EVERY_USER = Holder(user="%u", group="%u")


@dataclass(slots=True)
class RightsTable:
    """A parsed file. `groups` holds rules by group, `members` groups by user."""

    anonymous: list[Rule] = field(default_factory=list)
    users: dict[str, list[Rule]] = field(default_factory=dict)
    groups: dict[str, list[Rule]] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    patterns: list[Rule] = field(default_factory=list)
    client_names: dict[Holder, list[str]] = field(default_factory=dict)

    def names_of(self, user: str | None) -> list[str]:
        """Patterns of client identifiers: the user's, those of its groups, and for users also those with %u."""
        if user is None:
            return self.client_names.get(ANONYMOUS, [])
        holders = [EVERY_USER, Holder(user=user), *(Holder(group=each) for each in self.members.get(user, ()))]
        return [name for holder in holders for name in self.client_names.get(holder, ())]

    def rules_of(self, user: str | None) -> list[Rule]:
        """Rules of a user and its groups; without patterns."""
        if user is None:
            return self.anonymous
        rules = list(self.users.get(user, ()))
        for group in self.members.get(user, ()):
            rules += self.groups[group]
        return rules


def read_rights_file(path: Path) -> RightsTable:
    """Parse a file; AccountsError names file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        problem = (error.strerror or "cannot be read").lower()
        raise AccountsError(problem, file=str(path), hint="name a file that the broker can read") from None
    except UnicodeDecodeError:
        raise AccountsError("not UTF-8 text", file=str(path), hint="save it as UTF-8") from None
    return parse_rights(text, str(path))


def parse_rights(text: str, file: str = "") -> RightsTable:
    parser = _Parser(file)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            parser.take(number, line)
    return parser.table


class _Parser:
    """Line by line; remembers whose rules come next."""

    def __init__(self, file: str) -> None:
        self.table = RightsTable()
        self._file = file
        self._line = 0
        self._rules = self.table.anonymous
        self._holder = ANONYMOUS
        self._group = ""
        self._words: dict[str, Callable[[str], None]] = {
            "user": self._on_user,
            "group": self._on_group,
            "member": self._on_member,
            "topic": self._on_topic,
            "pattern": self._on_pattern,
            "client": self._on_client,
        }

    def take(self, number: int, line: str) -> None:
        self._line = number
        word, _, rest = line.partition(" ")
        handle = self._words.get(word)
        if handle is None:
            raise self._error(
                f"unknown word {word[:40]!r}", f"a line begins with {', '.join(self._words)} or #"
            )
        rest = rest.strip()
        if not rest:
            raise self._error(f"nothing follows {word!r}", "")
        handle(rest)

    def _on_user(self, name: str) -> None:
        self._check_name(name)
        self._group = ""
        self._holder = Holder(user=name)
        self._rules = self.table.users.setdefault(name, [])

    def _on_group(self, name: str) -> None:
        self._check_name(name)
        self._group = name
        self._holder = Holder(group=name)
        self._rules = self.table.groups.setdefault(name, [])

    def _on_member(self, names: str) -> None:
        if not self._group:
            raise self._error("members outside a group", "write `group NAME` before")
        for name in names.split():
            self._check_name(name)
            groups = self.table.members.setdefault(name, [])
            if self._group not in groups:
                groups.append(self._group)

    def _on_topic(self, rest: str) -> None:
        rule = self._rule(rest)
        if rule.is_pattern:
            raise self._error(
                "%u and %c stand for nothing in a topic line", "write `pattern` instead of `topic`"
            )
        self._rules.append(rule)

    def _on_pattern(self, rest: str) -> None:
        self.table.patterns.append(self._rule(rest))

    def _on_client(self, name: str) -> None:
        if "%c" in name:
            raise self._error("%c is what this line is about", "* stands for any characters, %u for the user name")
        if name.count("*") > 1:
            raise self._error("more than one *", "write a line for each")
        holder = EVERY_USER if "%u" in name else self._holder
        self.table.client_names.setdefault(holder, []).append(name)

    def _rule(self, rest: str) -> Rule:
        word, _, topic_filter = rest.partition(" ")
        if word in WORDS:
            access, is_denied = WORDS[word]
            topic_filter = topic_filter.strip()
        elif topic_filter:
            # A misspelt `deny` must not become a right; a filter with blanks has its access written before it.
            near = get_close_matches(word, WORDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(WORDS)} comes first"
            raise self._error(f"unknown access {word[:40]!r}", hint)
        else:
            access, is_denied, topic_filter = BOTH, False, rest
        if topic_filter.startswith("$share/"):
            raise self._error("rights are about topics, shared or not", "leave out $share/ and the group")
        try:
            levels_of(topic_filter)
        except MQTTError as error:
            raise self._error(str(error), "") from None
        return Rule(access, is_denied, topic_filter)

    def _check_name(self, name: str) -> None:
        # Users named by a token or URI may hold a colon.
        if problem := check_user_name(name.replace(":", "")):
            raise self._error(problem, "")

    def _error(self, problem: str, hint: str) -> AccountsError:
        return AccountsError(problem, file=self._file, line=self._line, hint=hint)
