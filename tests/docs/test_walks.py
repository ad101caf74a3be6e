"""Every line that the guide has a reader type is typed, and prints what the page says; what is not is listed."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REPOSITORY, Step, steps
from tests.docs.scripts import BEFORE, LONG, PREPARED, SERIAL, UNRUN, unrun_reason
from tests.docs.walk import walk

NAMES = [path.relative_to(REPOSITORY).as_posix() for path in PAGES]
TYPED = [
    name
    for name, path in zip(NAMES, PAGES, strict=True)
    if name != "README.md" and any(unrun_reason(name, step) is None for step in steps(path))
]


def check(name: str, folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    path = REPOSITORY / name
    typed, faults = walk(path, home)
    assert not faults, "\n".join(faults)
    assert typed == [step.command for step in steps(path) if unrun_reason(name, step) is None]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.serial) if SERIAL.fullmatch(name) else name
        for name in TYPED
        if not LONG.fullmatch(name)
    ],
)
def test_a_page_can_be_typed(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name in TYPED if LONG.fullmatch(name)])
def test_a_page_that_takes_long_can_be_typed(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def every_step() -> list[tuple[str, Step]]:
    return [(name, step) for name, path in zip(NAMES, PAGES, strict=True) for step in steps(path)]


def test_most_lines_are_typed() -> None:
    found = every_step()
    left_out = [each for each in found if unrun_reason(*each) is not None]
    assert len(found) >= 100
    assert len(left_out) <= len(found) * 0.4, [step.command for _, step in left_out]


def test_no_exception_is_stale() -> None:
    used = {unrun_reason(*each) for each in every_step()}
    assert [each for each in UNRUN if each not in used] == []
    assert set(PREPARED) | set(BEFORE) <= set(NAMES)


@pytest.mark.parametrize("test", sorted({each.test for each in UNRUN if each.test}))
def test_a_test_that_is_said_to_do_it_exists(test: str) -> None:
    file, _, name = test.partition("::")
    path = REPOSITORY / file
    if name in ("", "*"):
        assert list(path.parent.glob(path.name)), test
    else:
        assert re.search(rf"^(async )?def {name}\(", path.read_text(encoding="utf-8"), flags=re.MULTILINE), test


@pytest.mark.parametrize(
    "target", sorted({target for _, step in every_step() for target in re.findall(r"^make (\w+)", step.command)})
)
def test_targets_of_make_exist(target: str) -> None:
    command = ["make", "--dry-run", "--question", target]
    environment = {**os.environ, "LC_ALL": "C"}
    result = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "No rule" not in result.stderr
