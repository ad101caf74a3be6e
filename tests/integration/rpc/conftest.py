"""Every test that takes `options` runs on both backends, with real servers, in a namespace of its own."""

import secrets
from collections.abc import Iterator

import pytest

from tidegate.rpc import Options
from tidegate.testing import BrokerThread
from tidegate.testing.servers import RabbitServer, RedisServer


@pytest.fixture(scope="session")
def rabbit() -> Iterator[RabbitServer]:
    with RabbitServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as thread:
        yield thread


@pytest.fixture(params=["mqtt", "rabbitmq+redis"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(backend: str, broker: BrokerThread, request: pytest.FixtureRequest) -> Options:
    namespace = f"t{secrets.token_hex(4)}"
    url = f"mqtt://127.0.0.1:{broker.port}"
    if backend == "mqtt":
        return Options(url=url, namespace=namespace)
    rabbit, redis = request.getfixturevalue("rabbit"), request.getfixturevalue("redis")
    return Options(url=url, backend=backend, amqp=rabbit.url, redis=redis.url, namespace=namespace)


@pytest.fixture
def mqtt_options(broker: BrokerThread) -> Options:
    return Options(url=f"mqtt://127.0.0.1:{broker.port}", namespace=f"t{secrets.token_hex(4)}")
