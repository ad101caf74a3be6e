"""Every mode, small, against Mosquitto: every message is counted, none is lost."""

import pytest

from bench.brokers import Broker, free_port
from tidegate import load


def small(broker: Broker, mode: str, **options: object) -> load.Result:
    timing = {"seconds": 0.3, "warmup": 0.1} | options
    return load.run(mode=mode, port=broker.port, pid=broker.pid, **timing)


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("mode", ["pairs", "fanout", "fanin", "shared"])
def test_every_message_arrives_exactly_once(mosquitto: Broker, mode: str, qos: int, protocol: int) -> None:
    clients = {
        "pairs": {"publishers": 2, "subscribers": 2},
        "fanout": {"subscribers": 5},
        "fanin": {"publishers": 5},
        "shared": {"publishers": 2, "subscribers": 3},
    }[mode]
    result = small(mosquitto, mode, qos=qos, protocol=protocol, **clients)
    assert result.is_exact
    assert result.received == result.expected == result.sent * (5 if mode == "fanout" else 1)
    assert result.delivered > 0
    assert result.latency_samples > 0
    assert result.broker_cpu_us_per_message is not None
    assert result.broker_cpu_us_per_message > 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_trickle_keeps_its_rate(mosquitto: Broker, qos: int) -> None:
    result = small(mosquitto, "trickle", publishers=10, subscribers=10, rate=50.0, qos=qos)
    assert result.is_exact
    # 0.4 s at 500 messages a second, give or take the rounding of the last one.
    assert 199 <= result.sent <= 201
    assert result.latency_samples == result.delivered


def test_large_payloads_and_a_tiny_window_are_counted_too(mosquitto: Broker) -> None:
    result = small(mosquitto, "pairs", payload_bytes=20_000, window=3, qos=2)
    assert result.is_exact
    assert result.delivered > 0


def test_idle_connections_take_memory(mosquitto: Broker) -> None:
    result = small(mosquitto, "idle", subscribers=300)
    assert result.pss_bytes_per_connection is not None
    assert result.rss_before_bytes is not None
    assert result.connects_per_second is not None
    assert result.disconnects == 0


def test_held_connections_get_their_message_and_their_pings(mosquitto: Broker) -> None:
    result = small(mosquitto, "hold", subscribers=200, seconds=1.5, keep_alive=1)
    assert result.is_exact
    assert (result.sent, result.received, result.disconnects, result.unanswered_pings) == (200, 200, 0, 0)
    assert result.pings is not None
    assert result.pings > 200


def test_a_closed_port_is_reported_with_the_client_that_met_it() -> None:
    with pytest.raises(load.ConnectionRefused) as caught:
        load.run(mode="pairs", port=free_port(), seconds=0.1)
    assert caught.value.code is None


def test_connections_begin_no_faster_than_they_may(mosquitto: Broker) -> None:
    result = small(mosquitto, "idle", subscribers=101, connect_rate=400.0)
    assert result.connects_per_second is not None
    # The first one of the hundred does not wait.
    assert result.connects_per_second < 400.0 * 100 / 98
