"""Routes from the strength of advertisements: the published rule, its weakness, and the rule that mends it."""

from random import Random

import pytest

from tidegate.rpc.radio import Field, strength
from tidegate.rpc.routes import AgedRule, RouteRule, ThesisRule

# (gateway heard, RSSI, route afterwards): the four cases of spec 4.
THESIS_VECTORS = [
    ("a", -60.0, "a"),  # no entry
    ("b", -55.0, "b"),  # stronger
    ("b", -80.0, "b"),  # same gateway, signal fell
    ("a", -90.0, "b"),  # weaker, another
    ("a", -70.0, "a"),  # stronger than what the signal fell to
]


def test_the_thesis_rule_by_its_vectors() -> None:
    rule = ThesisRule()
    for gateway, rssi, route in THESIS_VECTORS:
        rule.heard("esl", gateway, rssi, 0.0)
        assert rule.gateway("esl") == route


def test_the_thesis_rule_never_leaves_a_dead_gateway() -> None:
    rule = ThesisRule()
    rule.heard("esl", "dead", -50.0, 0.0)
    for second in range(1, 3600):
        rule.heard("esl", "live", -70.0, float(second))
        rule.expire(float(second))
    assert rule.gateway("esl") == "dead"


def test_the_aged_rule_leaves_a_silent_gateway_when_its_entry_is_old() -> None:
    rule = AgedRule()
    rule.heard("esl", "dead", -50.0, 0.0)
    moved_at = None
    for second in range(1, 60):
        if rule.heard("esl", "live", -70.0, float(second)) == "live":
            moved_at = second
    assert moved_at == 10 and rule.gateway("esl") == "live"


def test_an_expiry_moves_what_no_advertisement_moved() -> None:
    rule = AgedRule()
    rule.heard("esl", "live", -70.0, 5.0)
    rule.heard("esl", "dead", -50.0, 0.0)
    assert rule.gateway("esl") == "dead"
    assert rule.expire(9.9) == {}
    assert rule.expire(10.0) == {"esl": "live"}
    assert rule.expire(10.1) == {}


def test_a_will_moves_devices_at_once() -> None:
    rule = AgedRule()
    rule.heard("esl", "dead", -50.0, 0.0)
    rule.heard("esl", "live", -70.0, 0.0)
    rule.heard("lonely", "dead", -50.0, 0.0)
    assert rule.lost("dead", 0.5) == {"esl": "live", "lonely": None}
    assert rule.gateway("lonely") is None
    assert rule.heard("lonely", "live", -80.0, 1.0) == "live"


def test_a_newcomer_must_be_stronger_by_the_margin() -> None:
    rule = AgedRule(margin=5.0, smoothing=1.0)
    rule.heard("esl", "a", -60.0, 0.0)
    assert rule.heard("esl", "b", -55.1, 0.1) is None
    assert rule.heard("esl", "b", -55.0, 0.2) == "b"


def test_a_device_that_nobody_hears_keeps_its_last_route() -> None:
    rule = AgedRule()
    rule.heard("esl", "a", -60.0, 0.0)
    assert rule.expire(1000.0) == {} and rule.gateway("esl") == "a"


def test_only_so_many_gateways_are_remembered() -> None:
    rule = AgedRule(remembered=3)
    for number in range(50):
        rule.heard("esl", f"g{number}", -60.0 - number, number / 100)
    assert rule.gateway("esl") == "g0"


def flaps(rule: RouteRule, seed: int) -> int:
    """Changes of route of devices that do not move, under noise of 6 dB for ten minutes."""
    field = Field([f"g{n}" for n in range(6)], 60.0, 40.0, noise=6.0, random=Random(seed))
    devices = [f"d{n}" for n in range(20)]
    for device in devices:
        field.add(device)
    changes = -len(devices)
    for step in range(300):
        for device in devices:
            for gateway, rssi in field.advertise(device):
                changes += rule.heard(device, gateway, rssi, step * 2.0) is not None
    return changes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_aged_rule_flaps_five_times_less_under_noise(seed: int) -> None:
    assert flaps(AgedRule(), seed) * 5 <= flaps(ThesisRule(), seed)


def test_radio_gets_weaker_with_distance_and_things_stay_inside() -> None:
    assert strength(1.0) == -50.0 and strength(10.0) == -75.0
    field = Field(["a", "b"], 30.0, 10.0, noise=0.0, random=Random(4))
    field.add("d", speed=3.0)
    for _ in range(1000):
        field.move(1.0)
        place = field.devices["d"]
        assert 0.0 <= place.x <= 30.0 and 0.0 <= place.y <= 10.0
    heard = dict(field.advertise("d"))
    assert max(heard, key=heard.__getitem__) == field.best("d")
    field.silent.add(field.best("d") or "")
    assert len(list(field.advertise("d"))) == 1
