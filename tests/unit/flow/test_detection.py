"""How well the adaptive back-off tells a publisher that sped up from one that is merely irregular (E1.4)."""

from collections.abc import Iterator
from random import Random

import pytest

from tidegate.flow.backoff import AdaptiveBackoff, AdaptivePublisher
from tidegate.lab.backoff.quality import measure
from tidegate.sim.workloads import FAMILIES

REGULAR = ("constant", "jitter 5 %", "jitter 20 %")


def settle(publisher: AdaptivePublisher, intervals: Iterator[float], messages: int = 300) -> float:
    now = 50.0
    for _ in range(messages):
        now += next(intervals)
        publisher.observe(now)
    return now


@pytest.mark.parametrize("family", [*REGULAR, "Poisson"])
def test_a_doubled_rate_is_found_and_innocent_messages_are_left_alone(family: str) -> None:
    quality = measure(
        AdaptiveBackoff, family, seeds=150, first_seed=200_000
    )  # none that the settings were chosen on
    assert quality.false_positive_rate <= 0.01
    assert quality.recall >= 0.95
    assert quality.precision >= 0.95


@pytest.mark.parametrize("seed", [100_192, 100_281, 100_085])
def test_an_innocent_publisher_does_not_stay_suspicious(seed: int) -> None:
    """Poisson streams whose training happened to be slow, by a third and more: one was marked for 426 of 500."""
    quality = measure(AdaptiveBackoff, "Poisson", seeds=1, first_seed=seed, fast=1)
    assert quality.false_positive_rate <= 0.1


def test_bursts_that_were_learnt_are_not_suspicious() -> None:
    assert measure(AdaptiveBackoff, "on/off", seeds=1, normal=4000, fast=1).innocent_marked == 0


@pytest.mark.parametrize("family", ["on/off", "Poisson"])
def test_a_tenfold_rate_is_found_in_any_family(family: str) -> None:
    assert measure(AdaptiveBackoff, family, seeds=20, speed=10.0).recall >= 0.95


@pytest.mark.parametrize("family", REGULAR)
@pytest.mark.parametrize("speed", [2.0, 5.0, 100.0])
def test_who_is_back_at_its_rate_is_free_within_twenty_messages(family: str, speed: float) -> None:
    for seed in range(20):
        intervals = FAMILIES[family](Random(seed))
        publisher = AdaptiveBackoff().publisher("p")
        now = settle(publisher, intervals)
        for _ in range(100):
            now += next(intervals) / speed
            publisher.observe(now)
        assert publisher.is_suspicious
        for _ in range(20):
            now += next(intervals)
            publisher.observe(now)
        assert not publisher.is_suspicious


def test_a_poisson_publisher_that_is_back_is_mostly_free_within_twenty_messages() -> None:
    free = 0
    for seed in range(100):
        intervals = FAMILIES["Poisson"](Random(seed))
        publisher = AdaptiveBackoff().publisher("p")
        now = settle(publisher, intervals)
        for _ in range(100):
            now += next(intervals) / 5.0
            publisher.observe(now)
        marks = 0
        for _ in range(20):
            now += next(intervals)
            publisher.observe(now)
            marks += publisher.is_suspicious
        free += marks < 20
    assert free >= 85


@pytest.mark.parametrize("family", REGULAR)
def test_a_rate_that_doubles_over_two_hundred_messages_is_followed(family: str) -> None:
    for seed in range(20):
        intervals = FAMILIES[family](Random(seed))
        publisher = AdaptiveBackoff().publisher("p")
        now = settle(publisher, intervals)
        run = longest = 0
        for sent in range(400):
            now += next(intervals) / 2.0 ** min(1.0, sent / 200)
            publisher.observe(now)
            run = run + 1 if publisher.is_suspicious else 0
            longest = max(longest, run)
        assert longest <= 20
        assert publisher.trained_rate == pytest.approx(2.0, rel=0.25)


@pytest.mark.parametrize("family", ["constant", "jitter 5 %"])
def test_a_step_to_one_and_a_half_is_accepted_within_twenty_messages(family: str) -> None:
    for seed in range(20):
        intervals = FAMILIES[family](Random(seed))
        publisher = AdaptiveBackoff().publisher("p")
        now = settle(publisher, intervals)
        run = longest = 0
        for _ in range(200):
            now += next(intervals) / 1.5
            publisher.observe(now)
            run = run + 1 if publisher.is_suspicious else 0
            longest = max(longest, run)
        assert 0 < longest <= 20


@pytest.mark.parametrize("family", [*REGULAR, "Poisson", "on/off"])
def test_a_night_of_silence_changes_nothing(family: str) -> None:
    """The first messages of the morning are neither suspicious nor taken for a lower rate."""
    for seed in range(10):
        intervals = FAMILIES[family](Random(seed))
        publisher = AdaptiveBackoff().publisher("p")
        now = settle(publisher, intervals, 400)
        rate = publisher.trained_rate
        now += 8 * 3600.0
        publisher.observe(now)
        assert not publisher.is_suspicious
        now = now + 1.0
        publisher.observe(now)
        assert publisher.trained_rate >= 0.7 * rate


def test_a_publisher_that_changed_for_good_is_accepted_at_last() -> None:
    publisher = AdaptiveBackoff().publisher("p")
    now = settle(publisher, FAMILIES["constant"](Random(0)))
    for _ in range(3000):
        now += 0.5
        publisher.observe(now)
    assert not publisher.is_suspicious
    assert publisher.trained_rate == pytest.approx(2.0, rel=0.1)


def test_a_chunk_after_a_stall_is_no_flood() -> None:
    """Sixty messages a second that arrive together after a second of silence, now and then."""
    publisher = AdaptiveBackoff().publisher("p")
    now = 10.0
    for second in range(60):
        if second % 10 == 9:
            now += 1.0
            publisher.observe(now, count=60)
            assert not publisher.is_suspicious
            continue
        for _ in range(60):
            now += 1 / 60
            publisher.observe(now)
            assert not publisher.is_suspicious
