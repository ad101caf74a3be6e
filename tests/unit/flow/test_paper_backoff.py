"""The published back-off: the unit vectors of spec 1, Table I, every ambiguity."""

from math import e, exp, inf, isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.flow.backoff import REFUSE, Mode, PaperBackoff, PaperPublisher, Prior, State
from tidegate.lab.backoff.quality import measure

TABLE_I = [(0.3, 1.3), (0.6, 1.82), (1.0, 2.7), (1.3, 3.66), (1.6, 4.95), (2.0, 7.38)]


def trained(policy: PaperBackoff | None = None) -> PaperPublisher:
    publisher = (policy or PaperBackoff()).publisher("p")
    for now in (0.0, 6.0, 12.0, 18.0):
        assert publisher.observe(now) == 0.0
    return publisher


def test_four_messages_train_the_rate() -> None:
    assert trained().fr_avg == 1 / 6


def test_a_message_at_the_trained_interval_is_accepted() -> None:
    publisher = trained()
    assert publisher.observe(24.0) == 0.0
    assert publisher.fr_new == publisher.fr_avg


def test_faster_messages_are_delayed_by_the_exponential_of_their_rate_up_to_the_maximum() -> None:
    publisher = trained()
    publisher.observe(24.0)
    assert publisher.observe(25.0) == e
    assert publisher.fr_new == 1.0
    assert publisher.observe(25.5) == pytest.approx(7.389, abs=5e-4)
    assert publisher.d_f == PaperBackoff().d_max


def test_a_rate_that_would_overflow_is_clamped_before_the_exponential() -> None:
    publisher = trained()
    assert publisher.observe(18.0 + 1e-6) == exp(2.0)
    assert PaperBackoff().delay(1e6) == exp(2.0)


@pytest.mark.parametrize(("fr_new", "printed"), TABLE_I)
def test_table_i_follows_from_the_printed_rates(fr_new: float, printed: float) -> None:
    assert PaperBackoff().delay(fr_new) == pytest.approx(printed, abs=0.06)


def test_the_published_example_is_five_messages_in_thirty_seconds() -> None:
    publisher = PaperBackoff(n=5).publisher("p")
    for now in (0.0, 6.0, 12.0, 18.0, 24.0):
        publisher.observe(now)
    assert int(publisher.fr_avg * 100) / 100 == 0.16


def test_identical_timestamps_are_infinitely_fast() -> None:
    publisher = trained()
    assert publisher.observe(18.0) == PaperBackoff().d_max
    assert publisher.fr_new == inf


def test_messages_of_one_chunk_are_judged_one_by_one() -> None:
    publisher = trained()
    assert publisher.observe(24.0, count=3) == PaperBackoff().d_max
    assert PaperBackoff().is_per_message


def test_the_back_off_ends_when_the_publisher_is_slow_again() -> None:
    publisher = trained()
    assert publisher.observe(19.0) > 0.0
    assert publisher.snapshot(19.0).state is State.HELD
    assert publisher.observe(25.0) == 0.0
    assert publisher.snapshot(25.0).state is State.NORMAL


def test_literal_training_flags_every_message_of_a_regular_publisher() -> None:
    publisher = PaperBackoff(training="literal").publisher("p")
    for now in range(5):
        assert publisher.observe(float(now)) == 0.0
    assert publisher.fr_avg == 0.75
    assert all(publisher.observe(float(now)) > 0.0 for now in range(5, 105))


def test_a_margin_accepts_what_is_only_a_little_faster() -> None:
    publisher = trained(PaperBackoff(margin=1.5))
    assert publisher.observe(23.0) == 0.0  # 1.2 times
    assert publisher.observe(26.0) > 0.0  # twice


def test_drop_mode_refuses_what_the_others_delay() -> None:
    assert trained(PaperBackoff(mode=Mode.DROP)).observe(19.0) == REFUSE
    assert trained(PaperBackoff(mode=Mode.HOLD)).observe(19.0) == e


def test_a_prior_rate_replaces_training() -> None:
    publisher = PaperBackoff().publisher("p", Prior(rate=1.0))
    assert publisher.observe(0.0) == 0.0
    assert publisher.observe(0.5) == exp(2.0)


@pytest.mark.parametrize("arguments", [{"n": 1}, {"margin": 0.0}, {"d_max": 0.0}, {"d_max": inf}])
def test_parameters_without_meaning_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        PaperBackoff(**arguments)  # type: ignore[arg-type]


@given(st.lists(st.floats(0.0, 1e6), max_size=50), st.floats(0.01, 100.0))
def test_a_delay_is_finite_not_negative_and_at_most_the_maximum(gaps: list[float], d_max: float) -> None:
    publisher = PaperBackoff(d_max=d_max).publisher("p")
    now = 0.0
    for gap in gaps:
        now += gap
        delay = publisher.observe(now)
        assert isfinite(delay) and 0.0 <= delay <= d_max


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_a_faster_message_never_waits_less(one: float, other: float) -> None:
    policy = PaperBackoff()
    assert policy.delay(max(one, other)) >= policy.delay(min(one, other))


@pytest.mark.parametrize(("family", "expected"), [("jitter 5 %", 0.5), ("Poisson", 0.578)])
def test_innocent_publishers_are_flagged_as_often_as_theory_says(family: str, expected: float) -> None:
    """Spec 1, ambiguity 3: half of all messages with symmetric jitter, 1 - (3/4)**3 of a Poisson stream."""
    quality = measure(PaperBackoff, family, seeds=200, normal=60, fast=1)
    assert quality.false_positive_rate == pytest.approx(expected, abs=0.05)
