"""How fast Spark is, from the times of its tasks."""

from tidegate.spark.pace import Pace
from tidegate.spark.segments import Done


def test_nothing_is_known_before_the_first_task() -> None:
    pace = Pace()
    pace.add([])
    assert (pace.seconds, pace.end, pace.take_count()) == (0.0, 0, 0)


def test_tasks_side_by_side_share_their_time() -> None:
    pace = Pace()
    pace.add([Done(200, 100, 0, 1_000_000), Done(100, 100, 500_000, 2_000_000)])
    assert (pace.seconds, pace.end, pace.take_count(), pace.take_count()) == (0.01, 200, 200, 0)


def test_a_pause_between_tasks_is_no_work() -> None:
    pace = Pace()
    pace.add([Done(10, 10, 0, 100_000), Done(20, 10, 60_000_000, 60_100_000)])
    assert pace.seconds == 0.01
