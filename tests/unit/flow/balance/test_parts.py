"""Detectors, predictors and shedding."""

import pytest

from tidegate.flow.balance import EdgeDetector, HeadDetector, Metric, PublishSample, QueueSample
from tidegate.flow.balance.predictors import PREDICTORS, Ewma, Holt
from tidegate.flow.balance.shedding import Demand, admitted, is_hopeless


def _sample(arrived: float, departed: float, depth: float, topic: str = "8") -> QueueSample:
    return QueueSample(
        topic=topic,
        subscribers=7,
        size_bytes=400,
        budget=0.8,
        arrived=arrived,
        departed=departed,
        depth=depth,
    )


def test_a_detector_turns_counters_into_the_four_metrics() -> None:
    detector = EdgeDetector("b1", uplink=8e6, downlink=8e6, matching=15_000)
    view = detector.view([_sample(2800, 2450, 350)], 2.0)
    assert (view.bundles["8"].arriving, view.bundles["8"].leaving, view.bundles["8"].depth) == (
        1400,
        1225,
        350,
    )
    assert view.utilisation(Metric.UPLINK) == pytest.approx(0.56)
    assert view.utilisation(Metric.DOWNLINK) == pytest.approx(0.08)
    assert view.utilisation(Metric.MATCHING) == pytest.approx(200 / 15_000)
    assert view.utilisation(Metric.QUEUE) == 350


def test_a_detector_forgets_topics_that_are_gone() -> None:
    detector = EdgeDetector("b1", uplink=8e6, downlink=8e6, predictor=Ewma)
    detector.view([_sample(1000, 1000, 0)], 1.0)
    detector.view([_sample(1, 1, 0, "other")], 1.0)
    assert detector.view([_sample(10, 10, 0)], 1.0).bundles["8"].arriving == 10


def test_confidence_is_added_to_what_arrives_only() -> None:
    detector = EdgeDetector("b1", uplink=8e6, downlink=8e6, predictor=Ewma, confidence=2.0)
    for count in (90, 110) * 20:
        view = detector.view([_sample(count, 100, 0)], 1.0)
    assert view.bundles["8"].arriving > 110
    assert view.bundles["8"].leaving == 100


def test_a_head_detector_counts_copies() -> None:
    detector = HeadDetector("h", uplink=20e6, downlink=20e6)
    sample = PublishSample(topic="8", publishers=2, size_bytes=400, arrived=100, copies=3)
    view = detector.view([sample], 1.0)
    assert view.utilisation(Metric.DOWNLINK) == pytest.approx(0.016)
    assert view.utilisation(Metric.UPLINK) == pytest.approx(0.048)
    assert detector.view([], 1.0).bundles == {}


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_every_predictor_settles_on_a_constant(name: str) -> None:
    predictor = PREDICTORS[name]()
    for _ in range(50):
        predictor.update(100.0)
    assert predictor.predict() == pytest.approx(100.0)
    assert predictor.deviation == pytest.approx(0.0)


def test_holt_sees_a_ramp_coming_and_never_predicts_less_than_nothing() -> None:
    holt = Holt()
    for value in range(0, 1000, 100):
        holt.update(float(value))
    assert holt.predict() > 930.0  # the last value is 900
    for value in range(900, -1, -300):
        holt.update(float(value))
    holt.update(0.0)
    assert holt.predict() >= 0.0


def test_priority_decides_who_is_admitted_when_nobody_has_room() -> None:
    demands = [
        Demand(topic="alarm", bits=4e6, priority=1),
        Demand(topic="a", bits=4e6, priority=2),
        Demand(topic="b", bits=1e6, priority=2),
        Demand(topic="log", bits=1e6, priority=3),
    ]
    assert admitted(demands, 7e6) == pytest.approx({"alarm": 1.0, "a": 0.5, "b": 1.0, "log": 0.0})
    assert admitted(demands, 10e6) == pytest.approx(dict.fromkeys(("alarm", "a", "b", "log"), 1.0))
    assert admitted(demands, 0.0) == pytest.approx(dict.fromkeys(("alarm", "a", "b", "log"), 0.0))


def test_a_message_is_given_up_when_it_would_be_late_anyway() -> None:
    assert not is_hopeless(0.5, 0.8, 0.2e6, 1e6)
    assert is_hopeless(0.5, 0.8, 0.4e6, 1e6)
    assert is_hopeless(0.0, 0.8, 0.0, 0.0)
