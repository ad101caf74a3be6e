"""The command line as a user meets it: real processes, their output and their exit codes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate import __version__
from tidegate.cli.main import COMMANDS
from tidegate.cli.status import ExitStatus
from tidegate.settings import Settings, load_settings

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


def tidegate(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", *map(str, arguments)]
    return subprocess.run(
        command, env=CLEAN | environ, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_help_lists_every_command_on_standard_output() -> None:
    result = tidegate("--help")
    assert (result.returncode, result.stderr) == (ExitStatus.OK, "")
    listed = [
        line.split()[0] for line in result.stdout.partition("Commands:")[2].splitlines() if line.strip()
    ]
    assert sorted(listed) == sorted(COMMANDS)  # groups of commands come after single ones


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = tidegate(command, "--help")
    assert result.returncode == ExitStatus.OK
    assert f"Usage: tidegate {command}" in result.stdout


def test_help_does_not_load_what_only_a_running_node_needs() -> None:
    program = (
        "import sys\nfrom tidegate.cli.main import build_app\nbuild_app([])\n"
        "heavy = {'uvloop', 'websockets', 'tidegate.node', 'tidegate.broker', 'tidegate.client'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"


def test_version_is_printed() -> None:
    assert tidegate("--version").stdout == f"tidegate {__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "--nonsense"], ["serve", "--port", "x"], []])
def test_a_command_line_that_makes_no_sense_is_a_usage_error(arguments: list[str]) -> None:
    assert tidegate(*arguments).returncode == ExitStatus.USAGE


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_misspelt_key_ends_with_one_line_and_a_hint(command: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[limits]\nmax_conections = 5\n")
    result = tidegate(command, *(["--config", path] if command == "serve" else [path]))
    assert (result.returncode, result.stdout) == (ExitStatus.CONFIG, "")
    assert result.stderr.splitlines() == [
        f"error: limits.max_conections = 5: unknown key ({path})",
        "hint: did you mean limits.max_connections?",
    ]


def test_the_configuration_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    result = tidegate("serve", TIDEGATE_CONFIG=str(tmp_path / "absent.toml"))
    assert result.returncode == ExitStatus.CONFIG
    assert "absent.toml" in result.stderr


def test_check_config_says_ok(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("[limits]\nmax_connections = 5\n")
    result = tidegate("check-config", path)
    assert (result.returncode, result.stdout, result.stderr) == (ExitStatus.OK, f"{path}: OK\n", "")


def test_what_check_config_shows_is_a_configuration_file(tmp_path: Path) -> None:
    result = tidegate("check-config", "--show", "--set", "name=north", TIDEGATE_LIMITS__MAX_CONNECTIONS="7")
    path = tmp_path / "shown.toml"
    path.write_text(result.stdout)
    settings = load_settings(path)
    assert (settings.name, settings.limits.max_connections) == ("north", 7)
    assert settings.features == Settings().features


def test_doctor_ends_well_when_only_warnings_remain() -> None:
    result = tidegate("doctor", "--set", "listeners.0.port=0")
    assert result.returncode == ExitStatus.OK, result.stdout
    assert result.stdout.startswith("ok    python")
    assert "\x1b" not in result.stdout


def test_doctor_fails_for_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = tidegate("doctor", "--set", f"listeners.0.port={port}")
    assert result.returncode == ExitStatus.FAILURE
    assert [line for line in result.stdout.splitlines() if line.startswith("fail") and str(port) in line]


def test_doctor_reports_refused_settings_among_its_findings(tmp_path: Path) -> None:
    result = tidegate("doctor", "--config", tmp_path / "absent.toml")
    assert result.returncode == ExitStatus.FAILURE
    assert [line for line in result.stdout.splitlines() if line.startswith("fail  settings")]


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    command = f"{sys.executable} -m tidegate check-config --show | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=CLEAN)
    assert "Traceback" not in result.stderr
    assert "Exception" not in result.stderr
