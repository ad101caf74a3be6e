"""An uplink that is too small, shared among subscribers: fairly, or by deadline."""

import pytest

from tidegate.flow.balance.sharing import Waiting, fair_shares, urgent_shares


def _waiting(key: str, bundle: str, size: float, deadline: float = 0.0) -> Waiting[str]:
    return Waiting(key=key, bundle=bundle, size=size, deadline=deadline)


def test_bundles_share_evenly_however_many_subscribers_they_have() -> None:
    """As the paper's topics do: one with a single subscriber has no less than one with seven."""
    many = [_waiting(f"s{n}", "8", 10.0) for n in range(7)]
    shares = fair_shares([*many, _waiting("one", "3", 20.0)], 50.0)
    assert shares["one"] == 20.0
    assert sum(shares[f"s{n}"] for n in range(7)) == pytest.approx(30.0)
    assert len({round(shares[f"s{n}"], 9) for n in range(7)}) == 1


def test_what_must_be_there_first_goes_first_and_what_is_late_last() -> None:
    waiting = [
        _waiting("tolerant", "a", 10.0, deadline=60.0),
        _waiting("urgent", "b", 10.0, deadline=1.0),
        _waiting("late", "c", 10.0, deadline=-1.0),
    ]
    assert urgent_shares(waiting, 15.0, now=0.0) == {"urgent": 10.0, "tolerant": 5.0, "late": 0.0}
    assert urgent_shares(waiting, 30.0, now=0.0) == {"urgent": 10.0, "tolerant": 10.0, "late": 10.0}
