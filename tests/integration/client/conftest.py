"""Every test that takes `port` runs against Mosquitto and against Tidegate; `version` adds both protocols."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.client.servers import mosquitto
from tidegate.testing import BrokerThread


@pytest.fixture(params=["mosquitto", "tidegate"])
def broker_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port(broker_name: str, tmp_path: Path) -> Iterator[int]:
    """A broker that lets everybody in, on its own port."""
    if broker_name == "mosquitto":
        with mosquitto(tmp_path) as number:
            yield number
    else:
        with BrokerThread() as broker:
            yield broker.port


@pytest.fixture(params=[5, 4], ids=["v5", "v3.1.1"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)
