"""Every test that takes `options` runs on both backends, with real servers, in a namespace of its own.

RabbitMQ and Redis are started once for all workers of a run: an Erlang machine takes seconds to start.
"""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidegate.rpc import Options
from tidegate.testing import BrokerThread
from tidegate.testing.servers import RabbitServer, RedisServer


@contextmanager
def state_of(folder: Path) -> Iterator[dict[str, Any]]:
    """What the workers of this run know about the servers; whoever has it may change it."""
    with (folder / "rpc-servers.json").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        state = json.loads(file.read() or '{"users": 0}')
        yield state
        file.truncate(0)
        file.write(json.dumps(state))
        file.flush()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs. The worker that came first starts them, and stops them when nobody uses them any more."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of the whole run
    started = None
    with state_of(folder) as state:
        if not state["users"]:
            started = RabbitServer(folder / "rabbitmq"), RedisServer(folder / "redis")
            for server in started:
                server.start()
            state["urls"] = {"amqp": started[0].url, "redis": started[1].url}
        state["users"] += 1
        urls: dict[str, str] = state["urls"]
    yield urls
    with state_of(folder) as state:
        state["users"] -= 1
        users = state["users"]
    deadline = time.monotonic() + 100.0
    while started and users and time.monotonic() < deadline:
        time.sleep(0.1)
        with state_of(folder) as state:
            users = state["users"]
    for server in started or ():
        server.kill()
        server.stop()


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
    return Options(url=url, backend=backend, namespace=namespace, **request.getfixturevalue("servers"))


@pytest.fixture
def mqtt_options(broker: BrokerThread) -> Options:
    return Options(url=f"mqtt://127.0.0.1:{broker.port}", namespace=f"t{secrets.token_hex(4)}")
