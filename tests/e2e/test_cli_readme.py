"""What README and guide say beside their commands is true: settings load, links lead somewhere, exit codes are there.

The commands are typed in tests/docs.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli.status import ExitStatus
from tidegate.settings import load_settings

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
OPERATING = (REPOSITORY / "docs" / "operating.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", blocks(OPERATING, "toml"))
def test_the_settings_that_are_shown_load(text: str, tmp_path: Path) -> None:
    path = tmp_path / "shown.toml"
    path.write_text(text, encoding="utf-8")
    assert len(load_settings(path).listeners) == text.count("[[listeners]]")


def test_links_in_the_documentation_lead_somewhere() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("changes/*.md")]
    pages += [*REPOSITORY.glob("results/**/*.md"), REPOSITORY / "bench" / "README.md"]
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_table_of_exit_codes_is_complete() -> None:
    shown = [int(code) for code in re.findall(r"^\| (\d+) \|", OPERATING, flags=re.MULTILINE)]
    assert shown == [int(status) for status in ExitStatus]


def test_the_program_runs_and_prints_what_is_shown_below_it() -> None:
    [program] = blocks(README, "python")
    [shown] = blocks(README, "text")
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, shown), result.stderr
