"""The figures in docs/active-control.md are what the code says."""

import doctest
from pathlib import Path

from tidegate.flow import TIMEOUT

PAGE = Path(__file__).parents[4] / "docs" / "active-control.md"


def test_the_session_of_the_page_is_real() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 3
    assert found.failed == 0


def test_the_page_names_every_policy() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}`" in text for name in TIMEOUT)
