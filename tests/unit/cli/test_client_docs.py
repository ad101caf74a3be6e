"""The page about the client keeps up with the code."""

import re
from pathlib import Path

from tidegate.cli.message_format import LETTERS

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def test_every_letter_of_patterns_is_listed() -> None:
    assert set(re.findall(r"`%(\w)`", PAGE.read_text())) == set(LETTERS)
