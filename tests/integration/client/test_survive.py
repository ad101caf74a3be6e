"""QoS 1 through a broker that is killed: the small version of `python -m bench.client.survive`."""

from bench.client.survive import run


def test_a_broker_killed_under_load_loses_no_message_of_qos_1() -> None:
    outcome = run(messages=5_000, kills=3)
    assert (outcome.lost, outcome.out_of_order) == (0, 0)
    assert outcome.publisher_connections >= 4
    assert outcome.subscriber_connections >= 4
