"""The notebook of examples/ prints what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.testing import BrokerThread

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_mqtt.py"


@pytest.mark.xdist_group("spark")  # a second session of its own, but not beside the first
def test_the_notebook_prints_what_it_published(tidegate_broker: BrokerThread) -> None:
    pytest.importorskip("pyspark")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    command = [sys.executable, str(EXAMPLE), "--port", str(tidegate_broker.port)]
    result = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "published 2000 messages",
        "different events: 1000",
        "plant/0/temperature 334 26.0",
        "plant/1/temperature 333 26.0",
        "plant/2/temperature 333 26.0",
        "plant/0/name is the boiler",
        "plant/1/name is the mill",
    ]
