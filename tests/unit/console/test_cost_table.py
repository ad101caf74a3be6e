"""The table in docs/design/console.md is what was measured."""

import json

import pytest

from bench import console_cost as bench


def test_the_table_of_costs_is_up_to_date() -> None:
    page = bench.PAGE.read_text(encoding="utf-8")
    assert bench.render(json.loads(bench.RESULT.read_text()), page) == page
    assert page.count(bench.BEGIN) == page.count(bench.END) == 1


def test_the_cost_is_within_what_is_promised() -> None:
    result = json.loads(bench.RESULT.read_text())
    assert result["publishers"] == 1_000
    assert max(result["more_than_without"].values()) <= 2.0


def test_another_result_is_another_table_and_nothing_else_changes() -> None:
    result = json.loads(bench.RESULT.read_text()) | {"cpu_percent": {"no console": 1.0, "overview": 3.5}}
    result["more_than_without"] = {"overview": 2.5}
    text = bench.render(result, f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n")
    assert "| no console | 1.00 % | – |\n| overview | 3.50 % | +2.50 |\n" in text
    assert "old" not in text
    assert text.startswith("before\n") and text.endswith("after\n")


def test_a_result_without_its_command_is_not_shown() -> None:
    result = json.loads(bench.RESULT.read_text())
    assert result["command"].startswith("python bench/console_cost.py")
    assert f"`{result['command']}`" in bench.PAGE.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="command"):
        bench.render(result | {"command": ""}, bench.PAGE.read_text(encoding="utf-8"))
