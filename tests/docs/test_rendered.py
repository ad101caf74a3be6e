"""Tables of measurements in the README, the guide and results/ are those of the JSON: none was typed or left behind."""

import json
from pathlib import Path

import pytest

from bench import render as bench
from tests.docs.pages import REPOSITORY
from tidegate.lab import render as lab
from tidegate.lab.registry import PAPERS
from tidegate.lab.run import load

RESULTS = REPOSITORY / "results"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
KEPT = [(paper, load(paper, RESULTS)) for paper in PAPERS]
SHOWN = [entry for _, entries in KEPT for entry in entries]
REPORT = json.loads((REPOSITORY / "bench/results/latest.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("README.md", bench.short_table(REPORT)),
        ("README.md", lab.readme_table(SHOWN)),
        ("docs/operating.md", bench.sizing_table(REPORT)),
        ("bench/README.md", bench.table(REPORT)),
    ],
    ids=["readme bench", "readme lab", "sizing", "bench"],
)
def test_a_table_is_that_of_the_measurement(page: str, table: str) -> None:
    assert table in (REPOSITORY / page).read_text(encoding="utf-8")


def test_the_page_of_all_papers_is_that_of_their_results() -> None:
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == lab.summary(KEPT)


def test_the_readme_shows_six_to_ten_headlines_and_every_paper() -> None:
    headlines = [[claim for _, _, page in entries for claim in page.claims if claim.is_headline] for _, entries in KEPT]
    assert 6 <= sum(map(len, headlines)) <= 10
    assert all(headlines)
    assert all(claim.short for claims in headlines for claim in claims)


def test_marks_are_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{bench.BEGIN}\nstale\n{bench.END}\nafter\n", encoding="utf-8")
    bench.put_between_marks("fresh", page)
    assert page.read_text(encoding="utf-8") == f"before\n{bench.BEGIN}\nfresh\n{bench.END}\nafter\n"
