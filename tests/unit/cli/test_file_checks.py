"""The doctor's checks of files, ports and variables, each against a real fault."""

import os
import socket
from pathlib import Path

import pytest

from tidegate.accounts.password_edit import set_password
from tidegate.accounts.settings import AccountsSettings
from tidegate.broker.store.lock import Lock
from tidegate.broker.store.store import FILE_NAME
from tidegate.cli.checks import Finding, Outcome, check_environment, check_metrics
from tidegate.cli.file_checks import check_accounts, check_data
from tidegate.settings import ListenerSettings, MetricsSettings, Settings


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    path = tmp_path / "accounts.txt"
    set_password(path, "ada", b"secret")
    return path


def accounts_findings(**changes: object) -> list[Finding]:
    return list(check_accounts(Settings(accounts=AccountsSettings(**changes))))


def test_no_accounts_are_no_fault_where_anonymous_clients_are_let_in() -> None:
    assert accounts_findings() == []


def test_no_accounts_and_no_anonymous_clients_are_warned_about() -> None:
    (finding,) = check_accounts(Settings(listeners=(ListenerSettings(host="0.0.0.0"),)))
    assert finding.outcome is Outcome.WARN
    assert "password_file" in finding.advice


def test_a_password_file_is_counted(passwords: Path) -> None:
    (finding,) = accounts_findings(password_file=passwords)
    assert (finding.outcome, finding.observed) == (Outcome.OK, f"{passwords}, 1 account")


def test_an_empty_password_file_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "accounts.txt"
    path.touch(0o600)
    (finding,) = accounts_findings(password_file=path)
    assert finding.outcome is Outcome.WARN
    assert "tidegate passwd" in finding.advice


def test_a_password_file_that_everybody_can_read_is_warned_about(passwords: Path) -> None:
    passwords.chmod(0o644)
    (finding,) = accounts_findings(password_file=passwords)
    assert (finding.outcome, finding.advice) == (Outcome.WARN, f"chmod 600 {passwords}")


def test_every_unusable_file_is_named_not_only_the_first(tmp_path: Path) -> None:
    rights = tmp_path / "rights.txt"
    rights.write_text("user ada\nnonsense\n")
    findings = accounts_findings(password_file=tmp_path / "absent", rights_file=rights)
    assert [finding.outcome for finding in findings] == [Outcome.FAIL, Outcome.FAIL]
    assert [finding.subject for finding in findings] == ["accounts.password_file", "accounts.rights_file"]
    assert f"{rights}:2" in findings[1].observed


def data_finding(folder: Path) -> Finding:
    (finding,) = check_data(folder)
    return finding


def test_without_a_data_folder_there_is_nothing_to_say() -> None:
    assert list(check_data(None)) == []


def test_a_data_folder_is_there_or_will_be_made(tmp_path: Path) -> None:
    assert data_finding(tmp_path).outcome is Outcome.OK
    finding = data_finding(tmp_path / "a" / "b")
    assert finding.outcome is Outcome.OK
    assert "will be made" in finding.observed
    assert list(tmp_path.iterdir()) == [], "the doctor changes nothing"


def test_a_file_in_the_way_of_the_data_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert data_finding(tmp_path / "file").outcome is Outcome.FAIL
    assert data_finding(tmp_path / "file" / "data").outcome is Outcome.FAIL


def test_a_name_that_no_folder_can_have_fails(tmp_path: Path) -> None:
    assert data_finding(tmp_path / ("x" * 1000)).outcome is Outcome.FAIL


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_is_not_writable_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert data_finding(tmp_path).outcome is Outcome.FAIL
    assert data_finding(tmp_path / "below").outcome is Outcome.FAIL


def test_a_data_folder_that_a_broker_uses_fails_until_it_is_done(tmp_path: Path) -> None:
    lock = Lock(tmp_path / FILE_NAME)
    finding = data_finding(tmp_path)
    assert (finding.outcome, finding.observed) == (Outcome.FAIL, "in use by another process")
    lock.release()
    assert data_finding(tmp_path).outcome is Outcome.OK


def metrics_findings(port: int, host: str = "127.0.0.1") -> list[Outcome]:
    settings = Settings(
        metrics=MetricsSettings(host=host, port=port), listeners=(ListenerSettings(port=1999),)
    )
    return [finding.outcome for finding in check_metrics(settings)]


def test_the_port_of_the_metrics_page_is_tried() -> None:
    assert metrics_findings(0) == []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert metrics_findings(port) == [Outcome.FAIL]
    assert metrics_findings(port) == [Outcome.OK]
    assert metrics_findings(1999) == [Outcome.FAIL]
    assert metrics_findings(port, "192.0.2.1") == [Outcome.FAIL]


def test_a_variable_with_an_underscore_too_few_is_warned_about() -> None:
    environ = {
        "TIDEGATE_LIMITS_MAX_CONNECTIONS": "5",
        "TIDEGATE_LISTENERS_2_PORT": "1884",
        "TIDEGATE_LIMITS__MAX_RETAINED": "5",  # right
        "TIDEGATE_NAME": "north",  # right, too
        "TIDEGATE_PORT": "tcp://10.0.0.1:1883",  # a container platform's
        "TIDEGATE_METRICS_PORT": "tcp://10.0.0.1:9100",
        "TIDEGATE_SERVICE_HOST": "10.0.0.1",
        "LIMITS_MAX_CONNECTIONS": "5",
    }
    findings = {finding.subject: finding for finding in check_environment(environ)}
    assert {name: finding.advice for name, finding in findings.items()} == {
        "TIDEGATE_LIMITS_MAX_CONNECTIONS": "did you mean TIDEGATE_LIMITS__MAX_CONNECTIONS?",
        "TIDEGATE_LISTENERS_2_PORT": "did you mean TIDEGATE_LISTENERS__2__PORT?",
    }
    assert {finding.outcome for finding in findings.values()} == {Outcome.WARN}
