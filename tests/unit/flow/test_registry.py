"""Every policy is found by name and keeps the contract of its kind."""

from dataclasses import fields
from random import Random

import pytest

from tidegate.flow import (
    BACKOFF,
    PRIORITY,
    UnknownPolicy,
    backoff_policy,
    balance_policy,
    placement_policy,
    priority_policy,
    shared_policy,
)
from tidegate.flow.backoff import Event, Load, Mode, State


@pytest.mark.parametrize("name", sorted(BACKOFF))
@pytest.mark.parametrize("mode", list(Mode))
def test_a_back_off_policy_answers_for_any_publisher_in_any_mode(name: str, mode: Mode) -> None:
    policy = backoff_policy(name)(mode=mode)
    assert policy.mode is mode
    random = Random(1)
    publisher = policy.publisher("p")
    now = 0.0
    for _ in range(200):
        policy.load = random.choice(list(Load))
        now += random.expovariate(1.0)
        hold = publisher.observe(now, 1, 64)
        assert hold >= 0.0 or mode is Mode.DROP
        assert publisher.snapshot(now, rank=2).rank == 2
    assert publisher.key == "p"
    assert publisher.snapshot(now).state is not State.TRAINING
    policy.leave(publisher)
    policy.join(publisher)


@pytest.mark.parametrize("name", sorted(PRIORITY))
def test_a_priority_policy_ranks_and_orders(name: str) -> None:
    policy = priority_policy(name)()
    policy.update("slow", 1.0)
    policy.update("fast", 2.0)
    assert 1 <= policy.rank("slow") <= policy.rank("fast")
    assert policy.key("slow", 5.0) <= policy.key("fast", 5.0)
    policy.remove("slow")


def test_an_unknown_name_says_what_is_known() -> None:
    finders = {
        "backoff": backoff_policy,
        "balance": balance_policy,
        "placement": placement_policy,
        "priority": priority_policy,
        "shared": shared_policy,
    }
    for kind, find in finders.items():
        with pytest.raises(UnknownPolicy) as caught:
            find("nonsense")  # type: ignore[operator]
        assert (caught.value.kind, caught.value.name) == (kind, "nonsense")


def test_the_event_record_has_the_columns_of_the_specification() -> None:
    columns = (
        "run broker_mode client_id msg_seq t_sent t_read t_forwarded bytes",
        "fr_avg fr_new d_f rank label_anomalous dropped",
    )
    assert " ".join(column.name for column in fields(Event)) == " ".join(columns)
