"""The figures in docs/design/space.md are what was measured, and what is promised."""

import json

from bench import space as bench


def test_the_table_of_figures_is_up_to_date() -> None:
    page = bench.PAGE.read_text(encoding="utf-8")
    assert bench.render(json.loads(bench.RESULTS.read_text()), page) == page
    assert page.count(bench.BEGIN) == page.count(bench.END) == 1


def test_the_figures_are_within_what_is_promised() -> None:
    report = json.loads(bench.RESULTS.read_text())
    assert report["engine"]["triples"] == 1_000_000
    assert report["engine"]["touch_ratio"] <= 3.0
    assert report["service"]["memory_updates_per_second"] >= 2_000
    assert report["service"]["durable_updates_per_second"] >= 2_000
    assert report["service"]["durable_notifications_missing"] == 0
