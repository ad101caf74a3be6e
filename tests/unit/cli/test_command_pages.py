"""The command reference, the manual page and the completion scripts say what the commands are."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tidegate import __version__
from tidegate.cli.command_pages import STATUS, render_man, render_markdown
from tidegate.cli.command_tree import Command, read_commands
from tidegate.cli.completion import Shell, render
from tidegate.cli.main import COMMANDS
from tidegate.cli.status import ExitStatus

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def root() -> Command:
    return read_commands()


def test_the_tree_has_every_command(root: Command) -> None:
    assert {command.path[0] for command in root.commands} == set(COMMANDS)
    assert all(command.summary for command in root.walk())


def test_every_option_says_what_it_is_for(root: Command) -> None:
    silent = [
        f"{command.name} {option.usage}"
        for command in root.walk()
        for option in command.options
        if not option.help
    ]
    assert silent == []


def test_the_reference_page_is_up_to_date(root: Command) -> None:
    page = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == render_markdown(root), "run `make docs`"


def test_the_manual_page_is_up_to_date(root: Command) -> None:
    page = (REPOSITORY / "packaging" / "man" / "tidegate.1").read_text(encoding="utf-8")
    assert page == render_man(root, __version__), "run `make docs`"


def test_every_exit_status_is_explained() -> None:
    assert list(STATUS) == list(ExitStatus)


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_groff_has_no_complaint_about_the_manual_page() -> None:
    page = REPOSITORY / "packaging" / "man" / "tidegate.1"
    result = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-c", page], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    plain = re.sub(".\b", "", result.stdout)
    assert "EXIT STATUS" in plain and "--metrics-port" in plain


def complete(script: Path, *words: str) -> list[str]:
    """What bash offers after these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    text = (
        f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tidegate; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(
        ["bash", "-c", text], cwd=script.parent, capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.split()


@pytest.fixture(scope="module")
def script(root: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "tidegate.bash"
    path.write_text(render(Shell.BASH, root), encoding="utf-8")
    return path


def test_bash_completes_commands_and_options(script: Path) -> None:
    assert complete(script, "tidegate", "ser") == ["serve"]
    assert complete(script, "tidegate", "lab", "r") == ["run", "report"]
    assert complete(script, "tidegate", "store", "exp") == ["export"]
    assert complete(script, "tidegate", "serve", "--set", "a=b", "--metr") == ["--metrics-port"]
    assert complete(script, "tidegate", "lab", "run", "--qu") == ["--quick"]
    assert complete(script, "tidegate", "serve", "--nothing") == []


def test_bash_completes_files_where_a_file_belongs(script: Path) -> None:
    (script.parent / "harbour.toml").touch()
    assert complete(script, "tidegate", "serve", "--config", "harb") == ["harbour.toml"]
    assert complete(script, "tidegate", "check-config", "harb") == ["harbour.toml"]


def test_zsh_reads_the_script_of_bash(root: Command) -> None:
    text = render(Shell.ZSH, root)
    assert text.startswith("#compdef tidegate\n") and text.endswith(render(Shell.BASH, root))


def test_fish_knows_every_command_and_option(root: Command) -> None:
    lines = render(Shell.FISH, root).splitlines()
    assert all(line.startswith(("#", "complete -c tidegate ")) for line in lines)
    assert all(re.sub(r"\\.", "", line).count("'") % 2 == 0 for line in lines[1:])
    options = sum(len(command.options) for command in root.walk())
    assert len(lines) == 1 + options + sum(len(command.commands) for command in root.walk())
