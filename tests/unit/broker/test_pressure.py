"""The steps of shedding by memory: their order, and where the bound comes from when none is set."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.broker.pressure import (
    SHARE,
    STEPS,
    Pressure,
    default_bound_bytes,
    pressure_of,
    process_memory_bytes,
)


@pytest.mark.parametrize(
    ("share", "step"),
    [
        (0.0, Pressure.NONE),
        (0.799, Pressure.NONE),
        (0.80, Pressure.NO_NEW_CLIENTS),
        (0.899, Pressure.NO_NEW_CLIENTS),
        (0.90, Pressure.DROP_QOS0),
        (0.949, Pressure.DROP_QOS0),
        (0.95, Pressure.HOLD),
        (0.999, Pressure.HOLD),
        (1.0, Pressure.GIVE_WAY),
        (7.5, Pressure.GIVE_WAY),
    ],
)
def test_each_step_begins_at_its_share_of_the_bound(share: float, step: Pressure) -> None:
    assert pressure_of(share) is step


@given(st.floats(min_value=0, max_value=2), st.floats(min_value=0, max_value=2))
def test_more_memory_never_means_less_pressure(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert pressure_of(low) <= pressure_of(high)


def test_new_clients_go_first_then_qos_0_then_publishers_wait_then_connections_give_way() -> None:
    order = [Pressure.NO_NEW_CLIENTS, Pressure.DROP_QOS0, Pressure.HOLD, Pressure.GIVE_WAY]
    assert [step for _, step in sorted(STEPS)] == order
    assert sorted(Pressure) == [Pressure.NONE, *order]


def test_memory_of_this_process_follows_what_it_takes() -> None:
    before = process_memory_bytes()
    held = bytearray(os.urandom(1) * 64_000_000)
    grown = process_memory_bytes() - before
    assert len(held) * 0.9 < grown < len(held) * 1.5


def test_without_a_setting_the_bound_leaves_the_machine_a_quarter() -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert process_memory_bytes() < default_bound_bytes() <= machine * SHARE
