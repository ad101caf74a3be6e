"""The report of a first run: one hour, of which little was recorded."""

from datetime import datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("plotly")

from tidegate.pipeline.report.gather import Facts
from tidegate.pipeline.report.page import FEW, html, markdown

NOON = datetime.fromisoformat("2026-01-05T12:00:00")


def facts(hours: int = 1, seconds: float = 26.0, **more: Any) -> Facts:
    at = [NOON + timedelta(hours=number) for number in range(hours)]
    return Facts(
        lake="lake",
        made_at=NOON,
        traffic=[
            {"at": each, "node": "n", "messages": 130, "bytes": 900, "publishers": 1, "lost": 0}
            for each in at
        ],
        topic_hours=[{"at": each, "topic": "t", "messages": 130} for each in at],
        loads=[
            {"at": each, "node": "n", "seconds": seconds, "wait_sum_us": 5.0, "samples": 3} for each in at
        ],
        publishers={"publishers": 1},
        **more,
    )


def plots(text: str) -> str:
    return text[text.index("</script></head>") :]


def test_one_point_is_a_mark_that_can_be_seen_on_an_axis_of_hours() -> None:
    body = plots(html(facts()))
    assert body.count('"mode":"lines+markers"') == 3
    assert body.count('"range":["2026-01-05T11:00:00","2026-01-05T13:00:00"]') == 3
    body = plots(html(facts(hours=FEW + 1)))
    assert body.count('"mode":"lines"') == 3
    assert '"range":["2026' not in body


def test_a_rate_over_an_hour_of_which_seconds_were_recorded_says_so() -> None:
    text = markdown(facts())
    assert "1 hour from 2026-01-05 12:00 UTC, 1 publisher. " in text
    assert text.count("only 0.72 % of that time was recorded") == 2
    text = markdown(facts(hours=2, seconds=3_600.0))
    assert "2 hours from 2026-01-05 12:00 UTC, 1 publisher. Rates are means of whole hours." in text
    assert "was recorded:" not in text


def test_words_are_not_names_of_columns() -> None:
    row = {"edge": "e", "topics": 1, "rate": 0.1, "util_up": 0.2, "util_match": 0.3}
    assert "util_" not in plots(html(facts(placement=[row])))


def test_what_a_growing_lake_has_is_told_and_is_no_fault() -> None:
    counts = [{"kind": kind, "table": "publish", "cases": 1, "count": 1} for kind in ("late", "open-hour")]
    assert "“late” and “open-hour” are no fault" in markdown(facts(quality_counts=counts))
    counts = [{"kind": "truncated", "table": "publish", "cases": 1, "count": 1}]
    assert "no fault" not in markdown(facts(quality_counts=counts))


def test_it_is_said_how_long_topics_have_to_be_recorded_to_be_compared() -> None:
    assert "Pairs of which at least 10 minutes were recorded, and messages in 60 seconds." in markdown(
        facts()
    )
