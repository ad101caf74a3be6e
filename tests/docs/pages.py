"""What the guide and the README show: fenced blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_OPERATORS = {"|", "||", "&", "&&", ";", "(", ")", "|&"}
_REDIRECTIONS = {">", ">>", "<", "2>"}
_KEYWORDS = {"until", "do", "done"}


@dataclass(frozen=True)
class Shown:
    """One simple command, as words, and the page that shows it."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


@dataclass(frozen=True)
class Step:
    """A line that a reader types, what the page says it prints, and the heading it stands under."""

    section: str
    command: str
    expected: list[str]


def steps(path: Path) -> list[Step]:
    """What the console blocks of a page have a reader do, in their order."""
    found: list[Step] = []
    section = ""
    for heading, language, text in re.findall(
        r"^#+ (.+?)$|^```(\w*)\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    ):
        if heading:
            section = heading
        elif language == "console":
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith("$ "):
                    found.append(Step(section, line[2:], []))
                else:
                    found[-1].expected.append(line)
    return found


def blocks(path: Path, language: str) -> list[str]:
    return [text for name, text in _FENCE.findall(path.read_text(encoding="utf-8")) if name == language]


def page(name: str) -> Path:
    return REPOSITORY / "docs" / name


def shell_lines(path: Path) -> Iterator[str]:
    """Lines that a reader would type: after `$ ` in console blocks, elsewhere those that begin with tidegate."""
    for language, text in _FENCE.findall(path.read_text(encoding="utf-8")):
        for line in text.replace("\\\n", " ").splitlines():
            if language == "console" and line.startswith("$ "):
                yield line[2:]
            elif language == "" and line.startswith("tidegate "):
                yield _without_remark(line)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("    tidegate "):
            yield _without_remark(line.strip())


def _without_remark(line: str) -> str:
    """Lists of commands explain them on the same line, after some blanks."""
    return re.split(r" {3,}", line)[0]


def simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line: pipes, lists and $(…) taken apart, redirections and comments left out."""
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from simple_commands(inner)
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "SUBSTITUTED", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in lexer:
        if skip:
            skip = False
        elif word in _REDIRECTIONS:
            skip = True
        elif word in _OPERATORS:
            if words:
                yield tuple(words)
            words = []
        # NAME=value before a command is its environment.
        elif words or (word not in _KEYWORDS and "=" not in word.split("/")[0]):
            words.append(word)
    if words:
        yield tuple(words)


def shown_commands() -> list[Shown]:
    return [
        Shown(path.relative_to(REPOSITORY).as_posix(), words)
        for path in PAGES
        for line in shell_lines(path)
        for words in simple_commands(line)
    ]
