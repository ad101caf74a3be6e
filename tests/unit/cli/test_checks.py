"""The doctor's checks, each against a real fault."""

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.cli import checks
from tidegate.cli.certificates import check_certificate
from tidegate.cli.checks import Finding, Outcome
from tidegate.cli.doctor import render
from tidegate.settings import ListenerSettings, ListenerType, Settings
from tidegate.testing.certificates import Authority, make_authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def findings_for(*listeners: ListenerSettings, is_port_named: bool = True) -> list[Finding]:
    return list(checks.check_listeners(Settings(listeners=listeners), is_port_named=is_port_named))


def tls_findings(certfile: Path, keyfile: Path, client_ca: Path | None = None) -> list[Finding]:
    listener = ListenerSettings(
        type=ListenerType.TLS, certfile=certfile, keyfile=keyfile, client_ca=client_ca
    )
    return list(check_certificate(listener))


def test_this_interpreter_and_event_loop_are_fine() -> None:
    assert checks.check_python().outcome is Outcome.OK
    assert checks.check_uvloop().outcome is Outcome.OK
    assert checks.check_clock().outcome is Outcome.OK


def test_a_clock_that_was_never_set_fails() -> None:
    assert checks.check_clock(now=0.0).outcome is Outcome.FAIL


def test_more_connections_than_descriptors_are_warned_about() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        pytest.skip("this machine has no limit")
    assert checks.check_open_files(soft - checks.SPARE_DESCRIPTORS).outcome is Outcome.OK
    finding = checks.check_open_files(soft)
    assert finding.outcome is Outcome.WARN
    assert "LimitNOFILE" in finding.advice


@pytest.mark.parametrize("content, outcome", [("128\n", Outcome.WARN), ("4096\n", Outcome.OK)])
def test_a_short_accept_queue_is_warned_about(tmp_path: Path, content: str, outcome: Outcome) -> None:
    path = tmp_path / "somaxconn"
    path.write_text(content)
    (finding,) = checks.check_backlog(path)
    assert finding.outcome is outcome


def test_a_kernel_that_does_not_tell_its_queue_length_is_no_fault(tmp_path: Path) -> None:
    assert list(checks.check_backlog(tmp_path / "absent")) == []


def test_a_free_port_is_fine() -> None:
    (finding,) = findings_for(ListenerSettings(port=0))
    assert finding.outcome is Outcome.OK


def test_a_named_port_that_is_taken_fails(taken_port: int) -> None:
    (finding,) = findings_for(ListenerSettings(port=taken_port))
    assert finding.outcome is Outcome.FAIL
    assert str(taken_port) in finding.advice


def test_a_default_port_that_is_taken_is_only_warned_about(taken_port: int) -> None:
    (finding,) = findings_for(ListenerSettings(port=taken_port), is_port_named=False)
    assert finding.outcome is Outcome.WARN


def test_an_address_of_another_machine_fails() -> None:
    (finding,) = findings_for(ListenerSettings(host="192.0.2.1", port=0, allow_anonymous=False))
    assert finding.outcome is Outcome.FAIL


def test_anonymous_clients_from_outside_are_warned_about() -> None:
    findings = findings_for(ListenerSettings(host="0.0.0.0", port=0, allow_anonymous=True))
    assert [finding.outcome for finding in findings] == [Outcome.OK, Outcome.WARN]
    assert "allow_anonymous" in findings[1].advice


def unix_outcome(path: Path) -> Outcome:
    (finding,) = findings_for(ListenerSettings(type=ListenerType.UNIX, path=str(path)))
    return finding.outcome


def test_unix_sockets_are_judged_by_what_is_in_their_place(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert unix_outcome(tmp_path / "absent" / "s") is Outcome.FAIL
    assert unix_outcome(path) is Outcome.OK
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        assert unix_outcome(path) is Outcome.FAIL
    assert unix_outcome(path) is Outcome.OK, "a socket nobody listens on is replaced"
    path.unlink()
    path.write_text("not a socket")
    assert unix_outcome(path) is Outcome.FAIL


def test_a_certificate_with_years_to_go_is_fine(authority: Authority) -> None:
    issued = authority.issue("server", valid_days=365)
    findings = tls_findings(issued.certificate, issued.key, authority.certificate)
    assert [finding.outcome for finding in findings] == [Outcome.OK, Outcome.OK]


def test_a_certificate_that_runs_out_soon_is_warned_about(authority: Authority) -> None:
    issued = authority.issue("server", valid_days=3)
    (finding,) = tls_findings(issued.certificate, issued.key)
    assert finding.outcome is Outcome.WARN
    assert "renew" in finding.advice


def test_a_certificate_that_ran_out_fails(authority: Authority) -> None:
    issued = authority.issue("server", valid_days=-1)
    (finding,) = tls_findings(issued.certificate, issued.key)
    assert finding.outcome is Outcome.FAIL
    assert "expired" in finding.observed


def test_a_key_of_another_certificate_fails(authority: Authority) -> None:
    (finding,) = tls_findings(authority.issue("a").certificate, authority.issue("b").key)
    assert finding.outcome is Outcome.FAIL


def test_a_key_with_a_password_fails_instead_of_asking_for_it(authority: Authority) -> None:
    issued = authority.issue("server", key_password="secret")
    (finding,) = tls_findings(issued.certificate, issued.key)
    assert finding.outcome is Outcome.FAIL
    assert "password" in finding.advice


def test_a_missing_file_is_named(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue("server")
    (finding,) = tls_findings(tmp_path / "nowhere.pem", issued.key)
    assert (finding.outcome, finding.subject) == (Outcome.FAIL, str(tmp_path / "nowhere.pem"))


def test_client_authorities_that_are_not_certificates_fail(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue("server", valid_days=365)
    (tmp_path / "ca.pem").write_text("nonsense")
    _, finding = tls_findings(issued.certificate, issued.key, tmp_path / "ca.pem")
    assert finding.outcome is Outcome.FAIL


def test_the_table_puts_advice_under_its_line() -> None:
    findings = [
        Finding(outcome=Outcome.OK, subject="python", observed="3.11"),
        Finding(outcome=Outcome.FAIL, subject="x", observed="two\nlines", advice="do this"),
    ]
    assert render(findings, is_coloured=False).splitlines() == [
        "ok    python  3.11",
        "fail  x       two lines",
        "              -> do this",
    ]
