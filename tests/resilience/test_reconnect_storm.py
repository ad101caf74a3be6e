"""Everybody comes back at once: all get in, in turn, and who is connected goes on.

`python -m bench.soak reconnect` is the full-size version with 10 000 clients.
"""

import threading
import time

import pytest

from bench.soak import reconnect
from bench.soak.broker import BrokerProcess
from tests.resilience.conftest import StartBroker
from tidegate.mqtt import Connack, Connect, ReasonCode
from tidegate.testing.raw import RawClient

pytestmark = pytest.mark.serial

CLIENTS = 2_000
ATTEMPTS = 3  # a measurement may be disturbed by another program; three in a row are not


def test_2000_clients_are_back_soon_after_a_restart_and_a_connected_pair_hardly_notices() -> None:
    p99s: list[float] = []
    for _ in range(ATTEMPTS):
        found = reconnect.run(
            clients=CLIENTS, settings=("limits.connection_rate=700",), kinds=("restart",), baseline=1.0
        )
        (storm,) = found.storms
        assert storm.up == CLIENTS
        assert storm.turned_away == {}  # over the rate is no reason to refuse: they wait for their turn
        assert storm.seconds > 1.5  # 700 at once and 700 a second: the rate was kept
        assert storm.seconds < 20
        assert storm.during.received == storm.during.sent
        p99s.append(storm.during.p99_ms)
        if p99s[-1] < 100:
            break
    assert min(p99s) < 100


def test_clients_beyond_the_longest_wait_are_refused_at_different_times_and_get_in_later(
    start: StartBroker,
) -> None:
    broker = start("limits.connection_rate=20", "limits.connection_wait=1.0")
    answers = _connect_at_once(broker, 80)
    admitted = [seconds for seconds, code in answers if code == 0]
    refused = [seconds for seconds, code in answers if code == ReasonCode.CONNECTION_RATE_EXCEEDED]
    assert len(admitted) + len(refused) == 80
    assert (
        40 <= len(admitted) <= 60
    )  # 20 at once, 20 in the second that a client may wait, and what time added
    assert max(admitted) < 3
    # Delays are even over two seconds: 20 of them within half a second have a chance of less than 1 in 10^9.
    assert max(refused) - min(refused) > 0.5
    with RawClient(broker.port, timeout=10) as again:
        assert again.connect("again").reason_code == 0


def test_clients_that_wait_for_their_turn_do_not_exceed_the_limit_of_connections(start: StartBroker) -> None:
    broker = start("limits.connection_rate=10", "limits.connection_wait=10.0", "limits.max_connections=20")
    codes = [code for _, code in _connect_at_once(broker, 28)]  # 10 at once, 18 wait
    assert codes.count(0) == 20
    assert codes.count(ReasonCode.QUOTA_EXCEEDED) == 8


def _connect_at_once(broker: BrokerProcess, count: int) -> list[tuple[float, int]]:
    """Seconds and reason code of the answers to `count` clients; all stay until the last one has its answer."""
    answers: list[tuple[float, int]] = []
    clients: list[RawClient] = []
    began = time.monotonic()
    for number in range(count):
        client = RawClient(broker.port, timeout=15)
        clients.append(client)
        client.send(Connect(client_id=f"client-{number}"))

    def wait(client: RawClient) -> None:
        code = client.expect(Connack).reason_code
        answers.append((time.monotonic() - began, code))

    threads = [threading.Thread(target=wait, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    assert len(answers) == count
    return answers
