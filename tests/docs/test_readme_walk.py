"""A newcomer with the README alone: start, publish and subscribe, flood held, slow member relieved, policy learnt.

Everything is typed as it is printed and in that order, and prints what is printed.
"""

from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, steps
from tests.docs.walk import walk

README = REPOSITORY / "README.md"
TOURS = list(dict.fromkeys(step.section for step in steps(README) if step.section.startswith("Tour")))


def test_the_readme_has_three_tours_and_fewer_than_250_lines() -> None:
    assert [tour.split(":")[0] for tour in TOURS] == ["Tour 1", "Tour 2", "Tour 3"]
    assert len(README.read_text(encoding="utf-8").splitlines()) < 250


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_the_first_two_tours_and_all_that_is_before_them(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    typed, faults = walk(README, folder, lambda step: step.section != TOURS[2])
    assert not faults, "\n".join(faults)
    assert len(typed) >= 14


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_tour_through_spark_ends_with_the_broker_taking_the_policy(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    typed, faults = walk(README, folder, lambda step: step.section == TOURS[2])
    assert not faults, "\n".join(faults)
    assert [line.split()[1] for line in typed] == ["serve", "bench", "lake", "pipeline", "sub", "policy"]
