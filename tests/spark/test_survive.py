"""A small version of `python -m bench.spark.survive`: everything is killed once, nothing is lost."""

import pytest

pytest.importorskip("pyspark")

from bench.spark.survive import run


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_nothing_is_lost_when_driver_spool_and_broker_are_killed() -> None:
    outcome = run(messages=20_000, driver_kills=1, broker_kills=1)
    assert (outcome.lost, outcome.after_dedupe) == (0, 20_000)
    assert (outcome.driver_kills, outcome.broker_kills) == (1, 1)
