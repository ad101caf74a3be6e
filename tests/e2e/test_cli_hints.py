"""Mistakes that newcomers make, and whether what they read helps them on: real processes, two lines each."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.integration.client.servers import free_port
from tidegate.cli.status import ExitStatus

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


def tidegate(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", *map(str, arguments)]
    return subprocess.run(
        command, env=CLEAN | environ, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_a_port_at_the_top_of_the_file_is_sent_to_the_listeners(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("port = 1884\n")
    result = tidegate("check-config", path)
    assert result.returncode == ExitStatus.CONFIG
    assert "[[listeners]]" in result.stderr.splitlines()[1]


def test_a_port_that_is_set_alone_is_sent_to_the_first_listener() -> None:
    result = tidegate("check-config", "--set", "port=1884")
    assert result.stderr.splitlines()[1] == "hint: did you mean listeners.0.port?"


def test_check_config_names_a_variable_that_is_ignored() -> None:
    result = tidegate("check-config", TIDEGATE_LIMITS_MAX_CONNECTIONS="5")
    assert result.returncode == ExitStatus.OK
    assert result.stderr.splitlines() == [
        "warning: environment TIDEGATE_LIMITS_MAX_CONNECTIONS is ignored",
        "hint: did you mean TIDEGATE_LIMITS__MAX_CONNECTIONS?",
    ]


def test_serve_logs_a_variable_that_is_ignored() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that it ends by itself
        port = taken.getsockname()[1]
        result = tidegate("serve", "--port", port, TIDEGATE_LIMITS_MAX_CONNECTIONS="5")
    line = json.loads(result.stderr.splitlines()[0])
    assert line["variable"] == "TIDEGATE_LIMITS_MAX_CONNECTIONS"
    assert "TIDEGATE_LIMITS__MAX_CONNECTIONS" in line["hint"]


def test_doctor_takes_the_port_and_the_data_folder_of_serve(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = tidegate("doctor", "--port", port, "--data", tmp_path / "file")
    assert result.returncode == ExitStatus.FAILURE
    failed = [line for line in result.stdout.splitlines() if line.startswith("fail")]
    assert [str(port) in failed[0], str(tmp_path) in failed[1]] == [True, True]
    assert tidegate("doctor", "--port", 0, "--data", tmp_path).returncode == ExitStatus.OK


def test_doctor_looks_at_accounts_and_metrics(tmp_path: Path) -> None:
    port = free_port()
    result = tidegate(
        "doctor",
        "--port",
        0,
        "--set",
        f"accounts.password_file={tmp_path}/absent",
        "--set",
        f"metrics.port={port}",
    )
    assert result.returncode == ExitStatus.FAILURE
    assert "fail  accounts.password_file" in result.stdout
    assert f"metrics 127.0.0.1:{port}" in result.stdout
