"""Mosquitto for the load tool's tests: the tool must work against a broker that is not ours."""

from collections.abc import Iterator

import pytest

from bench.brokers import Broker


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[Broker]:
    with Broker(name="mosquitto") as broker:
        yield broker
