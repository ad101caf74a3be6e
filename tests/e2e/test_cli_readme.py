"""What the README shows is true: its settings load, its commands exist, its error looks as printed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli.main import COMMANDS
from tidegate.cli.status import ExitStatus
from tidegate.settings import load_settings

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    return [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


def tidegate_commands() -> list[str]:
    return [command for command in commands() if re.match(r"(\.venv/bin/)?tidegate ", command)]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "tidegate", *shlex.split(command)[1:]]
    return subprocess.run(arguments, env=CLEAN, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("text", blocks("toml"))
def test_settings_in_the_readme_load(text: str, tmp_path: Path) -> None:
    path = tmp_path / "readme.toml"
    path.write_text(text, encoding="utf-8")
    assert len(load_settings(path).listeners) == text.count("[[listeners]]")


@pytest.mark.parametrize("command", tidegate_commands())
def test_options_in_the_readme_exist(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    assert words[1] in COMMANDS
    help_text = run(f"tidegate {words[1]} --help", tmp_path).stdout
    if "COMMAND [ARGS]" in help_text:
        name = next(word for word in words[2:] if re.search(rf"^  {re.escape(word)}  ", help_text, re.MULTILINE))
        help_text += run(f"tidegate {words[1]} {name} --help", tmp_path).stdout
    for option in (word for word in words if word.startswith("--")):
        assert option in help_text


def test_check_config_answers_as_the_readme_prints_it(tmp_path: Path) -> None:
    (tmp_path / "harbour.toml").write_text(blocks("toml")[0], encoding="utf-8")
    shown = next(block for block in blocks("console") if "harbour.toml: OK" in block).splitlines()
    result = run(shown[0][2:], tmp_path)
    assert (result.returncode, result.stdout) == (ExitStatus.OK, f"{shown[1]}\n")


def test_a_misspelt_key_is_refused_as_the_readme_prints_it(tmp_path: Path) -> None:
    command, *expected = next(block for block in blocks("console") if "\nhint:" in block).splitlines()
    result = run(command[2:], tmp_path)
    assert (result.returncode, result.stderr.splitlines()) == (ExitStatus.CONFIG, expected)


@pytest.mark.parametrize(
    "target", [command.split()[1] for command in commands() if command.startswith("make ")]
)
def test_make_targets_in_the_readme_exist(target: str) -> None:
    result = subprocess.run(
        ["make", "--dry-run", "--question", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "No rule" not in result.stderr


def test_links_in_the_documentation_lead_somewhere() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("changes/*.md")]
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_table_of_exit_codes_is_complete() -> None:
    shown = [int(code) for code in re.findall(r"^\| (\d+) \|", README, flags=re.MULTILINE)]
    assert shown == [int(status) for status in ExitStatus]


def test_the_program_runs_and_prints_what_it_received() -> None:
    [program] = blocks("python")
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, "tide/level 3.2\n"), result.stderr
