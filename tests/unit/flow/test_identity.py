"""A new name is no new beginning; good names are kept."""

from tidegate.flow.backoff import (
    AdaptiveBackoff,
    AdaptiveSettings,
    IdentityTable,
    Load,
    PaperBackoff,
    Prior,
    Publisher,
)

NO_FLOOR = AdaptiveSettings(floor_rate=0.0)
HERE, THERE = "192.0.2.1", "192.0.2.2"


def train(publisher: Publisher, now: float, *, rate: float = 1.0, messages: int = 200) -> float:
    for _ in range(messages):
        now += 1.0 / rate
        publisher.observe(now)
    return now


def test_what_was_learnt_survives_a_reconnect_from_elsewhere() -> None:
    table = IdentityTable(AdaptiveBackoff())
    publisher = table.open("sensor", "", HERE, 0.0)
    now = train(publisher, 0.0)
    table.close("sensor", "", HERE, now)
    assert table.open("sensor", "", THERE, now) is publisher


def test_the_same_client_id_of_another_user_is_somebody_else() -> None:
    table = IdentityTable(AdaptiveBackoff())
    assert table.open("sensor", "ann", HERE, 0.0) is not table.open("sensor", "bob", HERE, 0.0)


def test_a_publisher_in_good_standing_leaves_nothing_at_its_address() -> None:
    table = IdentityTable(AdaptiveBackoff())
    publisher = table.open("sensor", "", HERE, 0.0)
    now = train(publisher, 0.0)
    table.close("sensor", "", HERE, now)
    assert table.open("other", "", HERE, now) is not publisher


def test_a_new_client_id_continues_the_suspicion_of_the_last_one() -> None:
    table = IdentityTable(AdaptiveBackoff())
    publisher = table.open("first", "", HERE, 0.0)
    now = train(publisher, train(publisher, 0.0), rate=100.0)
    table.close("first", "", HERE, now)
    assert table.open("innocent", "", THERE, now) is not publisher
    assert table.open("second", "", HERE, now) is publisher


def test_suspicion_at_an_address_is_forgotten_after_a_while() -> None:
    table = IdentityTable(AdaptiveBackoff(), memory=60.0)
    publisher = table.open("first", "", HERE, 0.0)
    now = train(publisher, train(publisher, 0.0), rate=100.0)
    table.close("first", "", HERE, now)
    assert table.open("second", "", HERE, now + 61.0) is not publisher


def test_an_attacker_that_cycles_ids_within_training_is_one_publisher() -> None:
    """Eight messages under each name, none of which would ever finish training, as fast as they go."""
    policy = AdaptiveBackoff(NO_FLOOR)
    table = IdentityTable(policy)
    for number in range(20):
        train(table.open(f"sensor{number}", "", THERE, 0.0), 0.0)
    policy.load = Load.HIGH
    now = 100.0
    admitted = 0
    number = 0
    while now < 200.0:
        name = f"attacker{number}"
        number += 1
        publisher = table.open(name, "", HERE, now)
        for _ in range(8):
            now += 0.001
            admitted += 1
            now += publisher.observe(now)
        table.close(name, "", HERE, now)
    assert admitted <= 1.1 * 16 * 100 + 100  # what is usual here for a stranger: 16 times the median rate


def test_clients_behind_one_address_have_allowances_of_their_own() -> None:
    table = IdentityTable(AdaptiveBackoff())
    publishers = {id(table.open(f"sensor{number}", "", HERE, 0.0)) for number in range(100)}
    assert len(publishers) == 100


def test_a_client_with_a_prior_does_not_inherit() -> None:
    table = IdentityTable(AdaptiveBackoff())
    publisher = table.open("first", "", HERE, 0.0)
    table.close("first", "", HERE, 0.0)
    assert table.open("known", "", HERE, 0.0, Prior(rate=1.0)) is not publisher
    assert table.open("unknown", "", HERE, 0.0) is publisher


def test_without_an_address_nothing_is_left() -> None:
    table = IdentityTable(AdaptiveBackoff())
    publisher = table.open("first", "", "", 0.0)
    table.close("first", "", "", 0.0)
    assert table.open("second", "", "", 0.0) is not publisher


def test_a_session_taken_over_is_closed_once() -> None:
    """The new connection opens before the old one is closed [MQTT5-3.1.4-3]."""
    table = IdentityTable(AdaptiveBackoff())
    publisher = table.open("c", "", HERE, 0.0)
    assert table.open("c", "", HERE, 0.0) is publisher
    table.close("c", "", HERE, 0.0)
    assert table.open("other", "", HERE, 0.0) is not publisher


def test_the_table_is_bounded_and_keeps_who_is_connected() -> None:
    policy = AdaptiveBackoff()
    table = IdentityTable(policy, capacity=10)
    connected = table.open("connected", "", "", 0.0)
    for number in range(1000):
        publisher = table.open(f"c{number}", "", "", float(number))
        train(publisher, float(number), messages=20)
        table.close(f"c{number}", "", "", float(number))
    assert len(table) <= 10
    assert len(policy.population) == 0
    assert table.open("connected", "", "", 1000.0) is connected


def test_addresses_are_bounded_too() -> None:
    table = IdentityTable(AdaptiveBackoff(), capacity=10)
    first = table.open("c", "", "address 0", 0.0)
    table.close("c", "", "address 0", 0.0)
    for number in range(1, 12):
        table.open(f"c{number}", "", f"address {number}", 0.0)
        table.close(f"c{number}", "", f"address {number}", 0.0)
    assert table.open("new", "", "address 0", 0.0) is not first


def test_the_table_serves_every_policy() -> None:
    table = IdentityTable(PaperBackoff())
    publisher = table.open("first", "", HERE, 0.0)
    table.close("first", "", HERE, 0.0)
    assert table.open("second", "", HERE, 0.0) is publisher


def test_closing_somebody_unknown_does_nothing() -> None:
    table = IdentityTable(AdaptiveBackoff())
    table.close("nobody", "", HERE, 0.0)
    assert len(table) == 0
