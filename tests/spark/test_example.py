"""The notebook of examples/ prints what it should."""

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tidegate.testing import BrokerThread

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_mqtt.py"


def test_the_notebook_prints_what_it_published(
    tidegate_broker: BrokerThread,
    spark: SparkSession,  # which the notebook finds and uses
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--port", str(tidegate_broker.port)])
    runpy.run_path(str(EXAMPLE))
    assert capsys.readouterr().out.splitlines() == [
        "published 2000 messages",
        "different events: 1000",
        "plant/0/temperature 334 26.0",
        "plant/1/temperature 333 26.0",
        "plant/2/temperature 333 26.0",
        "plant/0/name is the boiler",
        "plant/1/name is the mill",
    ]
