"""Whether a program printed what a page shows, where the page cannot know versions, times, ports and identifiers."""

import re

_UNITS = {"ms", "s", "us", "µs", "MB", "kB", "B", "%"}
_IDENTIFIER = re.compile(r"(?=[0-9a-f.]*\d)(?=[0-9a-f.]*[a-f])[0-9a-f][0-9a-f.]{6,}")
_NUMBER = re.compile(r"\d[\d.,]*")
_FRAME = re.compile(r"[─━┌┐└┘├┤┬┴┼│╇┃┡┩╞╪╡]+")


def pattern(line: str) -> re.Pattern[str]:
    """What a line must look like: words as they are, `…` for anything, measured numbers as any number.

    A whole number below 1000 that stands alone is a count, and counts are exact.
    """
    words = _FRAME.sub(" ", line).split()
    parts = []
    for at, word in enumerate(words):
        is_measured = at + 1 < len(words) and words[at + 1].strip(",;") in _UNITS
        if re.fullmatch(r"\d{1,3}[,;]?", word) and not is_measured:
            parts.append(re.escape(word))
        else:
            parts.append(_word(word))
    return re.compile(r"\s+".join(parts).replace(r"\s+.*", ".*").replace(r".*\s+", ".*"))


def _word(word: str) -> str:
    if word.startswith("/home/"):  # the reader's folder
        return r"\S*/" + re.escape(word.rpartition("/")[2])
    found, at = "", 0
    for match in re.finditer(rf"…|{_IDENTIFIER.pattern}|{_NUMBER.pattern}", word):
        found += re.escape(word[at : match.start()])
        at = match.end()
        if match[0] == "…":
            found += ".*"
        elif _IDENTIFIER.fullmatch(match[0]):
            found += r"[0-9a-f.]+"
        else:
            found += r"\d[\d.,]*"
    return found + re.escape(word[at:])


def missing(expected: list[str], output: str) -> str | None:
    """The first expected line that does not come, in its order; None if all do."""
    lines = iter([" ".join(_FRAME.sub(" ", line).split()) for line in output.splitlines()])
    for line in expected:
        if not line.strip():
            continue
        wanted = pattern(line)
        if not any(wanted.fullmatch(each) for each in lines):
            return line
    return None
