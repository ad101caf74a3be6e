"""The experiments run small. Real brokers need Mosquitto beside them; `make test` installs it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tidegate.lab.experiment import Context, Part, Presentation
from tidegate.lab.registry import find
from tidegate.lab.run import load, run, write_pages

Run = Callable[..., tuple[dict[str, Any], Presentation]]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs an experiment with `--quick`, once a module, through its JSON and pages; gives report and presentation."""

    @cache
    def quick_run(name: str, only: Part | None = None) -> tuple[dict[str, Any], Presentation]:
        [(paper, experiment)] = find(name)
        tmp_path = tmp_path_factory.mktemp("results")
        path = run(paper, experiment, Context(is_quick=True, only=only), tmp_path)
        assert path == tmp_path / paper.name / f"{experiment.name}.json"
        pages = write_pages(paper, tmp_path)
        assert {page.suffix for page in pages} >= {".md", ".html"}
        [(_, report, presentation)] = load(paper, tmp_path)
        return report, presentation

    return quick_run
