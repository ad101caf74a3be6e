"""How many routers: the rule by its vectors."""

import pytest

from tidegate.rpc.autoscale import Autoscaler, Sample, Scale
from tidegate.rpc.errors import RpcError

SCALE = Scale(minimum=1, maximum=20, utilisation=0.7, max_age=1.0, drain=5.0, cool_down=30.0)


def sample(now: float = 0.0, **given: float) -> Sample:
    values = {"arrivals": 0.0, "cost": 0.01, "backlog": 0, "oldest": 0.0, "replicas": 1} | given
    return Sample(now=now, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, 1),
        ({"arrivals": 70.0}, 1),  # 0.7 busy, just right
        ({"arrivals": 71.0}, 2),
        ({"arrivals": 700.0}, 10),
        ({"arrivals": 10_000.0}, 20),  # the most there may be
        ({"backlog": 350}, 1),  # 70 a second work it off in 5 s
        ({"backlog": 3500, "arrivals": 70.0}, 11),
        ({"oldest": 1.5, "arrivals": 10.0, "replicas": 4}, 5),  # the estimate was too low
        ({"oldest": 0.5, "arrivals": 10.0, "replicas": 1}, 1),
    ],
)
def test_the_number_of_routers(given: dict[str, float], wanted: int) -> None:
    assert Autoscaler(SCALE).decide(sample(**given)) == wanted


def test_up_at_once_and_down_after_the_cool_down() -> None:
    scaler = Autoscaler(SCALE)
    assert scaler.decide(sample(0.0, arrivals=700.0, replicas=1)) == 10
    assert scaler.decide(sample(1.0, arrivals=70.0, replicas=10)) == 10
    assert scaler.decide(sample(20.0, arrivals=350.0, replicas=10)) == 10
    assert scaler.decide(sample(31.0, arrivals=70.0, replicas=10)) == 5  # the most that was wanted meanwhile
    assert scaler.decide(sample(51.0, arrivals=70.0, replicas=5)) == 1


def test_nothing_to_do_may_mean_no_router_at_all() -> None:
    assert Autoscaler(Scale(minimum=0)).decide(sample(replicas=0)) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"minimum": 3, "maximum": 2}, {"maximum": 0, "minimum": 0}, {"utilisation": 0.0}, {"drain": 0.0}],
)
def test_a_scale_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RpcError):
        Scale(**wrong)  # type: ignore[arg-type]
