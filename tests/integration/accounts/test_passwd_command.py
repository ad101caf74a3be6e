"""`tidegate passwd` as an administrator meets it: real processes, with and without a terminal."""

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.accounts.password_file import read_password_file
from tidegate.accounts.passwords import verify_password

TIMEOUT = 60


def passwd(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tidegate", "passwd", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT)


def on_a_terminal(path: Path, *answers: bytes) -> tuple[int, bytes]:
    """Run `passwd FILE ada` on a terminal of its own, answering each prompt; exit code and what was shown."""
    command = [sys.executable, "-m", "tidegate", "passwd", str(path), "ada"]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, command)
    shown = b""
    left = list(answers)
    prompts = [b"Password for ada: ", b"Again: "]
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # how Linux reports that the other end is closed
            break
        if not data:
            break
        shown += data
        if left and shown.endswith(prompts[len(answers) - len(left)]):
            os.write(terminal, left.pop(0) + b"\n")
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown


def fits(path: Path, user: str, password: bytes) -> bool:
    return verify_password(read_password_file(path).accounts[user].password_hash or "", password)


def test_a_password_from_standard_input_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    result = passwd(path, "ada", "--password-stdin", given=b" with spaces \n")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"ada: added\n")
    assert fits(path, "ada", b" with spaces ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert passwd(path, "ada", "--password-stdin", given=b"new").stderr == b"ada: password changed\n"
    assert fits(path, "ada", b"new")


def test_accounts_are_listed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    passwd(path, "bob", "--password-stdin", given=b"x")
    passwd(path, "ada", "--password-stdin", "--scram", given=b"x")
    assert passwd(path, "--list").stdout == b"ada\tpassword,scram\nbob\tpassword\n"
    assert passwd(path, "ada", "--delete").returncode == 0
    assert passwd(path, "--list").stdout == b"bob\tpassword\n"
    assert passwd(path, "ada", "--delete").returncode == 1


def test_on_a_terminal_the_password_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    code, shown = on_a_terminal(path, b"hunter2", b"hunter2")
    assert code == 0 and b"hunter2" not in shown and fits(path, "ada", b"hunter2")


def test_two_different_passwords_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    code, shown = on_a_terminal(path, b"hunter2", b"hunter3")
    assert code == 1 and b"differ" in shown and not path.exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a:b", "--password-stdin"], 1),
        (["a\nb", "--password-stdin"], 1),
        (["ada"], 1),  # no terminal
        ([], 2),
        (["ada", "--list"], 2),
        (["ada", "--delete", "--scram"], 2),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, arguments: list[str], code: int) -> None:
    result = passwd(tmp_path / "accounts", *arguments, given=b"x")
    assert result.returncode == code and result.stdout == b"" and b"Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    assert passwd(tmp_path / "accounts", "ada", "--password-stdin", given=b"\n").returncode == 1
