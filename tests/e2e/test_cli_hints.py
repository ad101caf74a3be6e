"""Mistakes that newcomers make, and whether what they read helps them on: real processes, two lines each."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.accounts import Accounts, AccountsSettings
from tidegate.accounts.password_edit import set_password
from tidegate.cli.status import ExitStatus
from tidegate.testing import BrokerThread
from tidegate.testing.ports import free_port

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


def test_bench_against_a_port_nobody_listens_on_names_the_port() -> None:
    port = free_port()
    result = tidegate("bench", "--port", port)
    assert (result.returncode, result.stdout) == (ExitStatus.FAILURE, "")
    assert result.stderr.splitlines()[-2:] == [
        f"error: cannot connect to 127.0.0.1:{port}: nobody listens there",
        "hint: start the broker (tidegate serve), or correct --host and --port",
    ]


@pytest.mark.parametrize(
    "version, expiry, is_warned", [("5", [], True), ("5", ["-x", "60"], False), ("3.1.1", [], False)]
)
def test_sub_warns_of_a_kept_session_that_would_not_be_kept(
    tidegate_broker: BrokerThread, version: str, expiry: list[str], is_warned: bool
) -> None:
    server = ["-p", tidegate_broker.port, "-V", version]
    result = tidegate("sub", *server, "-t", "a", "-c", "-i", "me", "-W", "0", *expiry)
    assert result.returncode == ExitStatus.OK
    assert ("--session-expiry" in result.stderr) is is_warned
    quiet = tidegate("sub", *server, "-t", "a", "-c", "-i", "me", "-W", "0", "--quiet")
    assert quiet.stderr == ""


@pytest.fixture
def guarded_port(tmp_path: Path) -> Iterator[int]:
    """A broker where ada may read plant/# and write nothing, and strangers may do nothing."""
    passwords, rights = tmp_path / "accounts.txt", tmp_path / "rights.txt"
    set_password(passwords, "ada", b"secret")
    rights.write_text("user ada\ntopic read plant/#\n")
    accounts = Accounts(AccountsSettings(password_file=passwords, rights_file=rights, allow_anonymous=True))
    with BrokerThread(hooks=accounts.hooks()) as broker:
        yield broker.port
    accounts.close()


def test_a_denied_message_names_the_user_and_the_right(guarded_port: int) -> None:
    credentials = ["-u", "ada", "-P", "secret"]
    result = tidegate("pub", "-p", guarded_port, "-t", "plant/1", "-m", "x", "-q", 1, *credentials)
    assert result.returncode == ExitStatus.FAILURE
    hint = result.stderr.splitlines()[1]
    assert "'ada'" in hint
    assert "topic write" in hint


def test_a_denied_message_of_nobody_in_particular_asks_for_a_user_name(guarded_port: int) -> None:
    result = tidegate("pub", "-p", guarded_port, "-t", "plant/1", "-m", "x", "-q", 1)
    assert "--username" in result.stderr.splitlines()[1]


def test_a_denied_subscription_asks_for_the_right_to_read(guarded_port: int) -> None:
    result = tidegate("sub", "-p", guarded_port, "-t", "other/1", "-W", 5, "-u", "ada", "-P", "secret")
    assert "topic read" in result.stderr.splitlines()[1]


def test_the_first_make_says_that_it_installs_and_how_long_that_takes(tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    command = ["make", "--dry-run", f"VENV={tmp_path}/venv", "run"]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=60, check=True)
    (line,) = [line for line in result.stdout.splitlines() if "installing" in line]
    # The line itself, as the shell has it: said when there is nothing yet, and not a second time.
    said = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert "once, " in said.stderr
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "tidegate").touch(0o755)
    again = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert again.stderr == ""
