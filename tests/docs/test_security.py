"""The table of threats names tests, and they exist."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "security.md"


def _rows() -> list[list[str]]:
    table = PAGE.read_text(encoding="utf-8").split("## Who may try what")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_threat_has_somebody_something_and_a_test_that_is_such_an_attack() -> None:
    rows = _rows()
    assert len(rows) > 15
    for who, what, holds, shown in rows:
        assert who and what and holds
        named = re.findall(r"`([a-z_/]+\.py)::(test_[a-z_0-9]+)`", shown)
        assert named, what
        for path, name in named:
            text = (REPOSITORY / "tests" / path).read_text(encoding="utf-8")
            assert f"\ndef {name}(" in text, f"{path} has no {name}"


def test_whoever_finds_something_knows_where_to_say_it() -> None:
    text = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
    assert "docs/security.md#who-may-try-what" in text
