"""The password file: what it may hold, what it makes up, and how it is changed."""

import stat
import threading
from pathlib import Path

import pytest

from tests.unit.accounts.support import CHEAP
from tidegate.accounts.errors import AccountsError
from tidegate.accounts.password_edit import delete_account, set_password
from tidegate.accounts.password_file import (
    PasswordFile,
    check_user_name,
    new_secret_line,
    parse_password_file,
    read_password_file,
)
from tidegate.accounts.passwords import hash_password, verify_password
from tidegate.accounts.scram_keys import derive_keys, format_keys

# Of "secret", with the cheapest parameters there are.
HASH = "$argon2id$v=19$m=8,t=1,p=1$pbQLqJ8zvQOf8ajpyTG1CQ$jbjKHVOnh27t5YeYrhal+urvAPONxEBlx3LQri+Tow4"
KEYS = format_keys(derive_keys("secret", b"salt" * 4, 4096))


def test_a_file_holds_both_kinds_of_proof_comments_and_blank_lines() -> None:
    file = parse_password_file(f"# accounts\n\nada:{HASH}\r\nada:{KEYS}\nbob:{HASH}\n{new_secret_line()}\n")
    assert file.accounts.keys() == {"ada", "bob"}
    assert file.password_hash("ada") == (HASH, True)
    assert file.scram_keys("ada")[1] and not file.scram_keys("bob")[1]


@pytest.mark.parametrize(
    "line",
    [
        "ada",
        "ada:",
        "ada:secret",
        f":{HASH}",
        "ada:$argon2id$",
        f"ada:{HASH[:-30]}",
        "ada:$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA",
        "ada:$argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA",
        f"ada:{KEYS[:-3]}",
        f"a\x07da:{HASH}",
        f" ada:{HASH}",
        f"ada:{HASH}\nada:{HASH}",
        f"ada:{KEYS}\nada:{KEYS}",
        ":SCRAM-SECRET$c2hvcnQ=",
        ":SCRAM-SECRET$!",
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_not_quoted(line: str) -> None:
    with pytest.raises(AccountsError) as caught:
        parse_password_file(f"# first\n{line}\n", "accounts")
    assert (caught.value.file, caught.value.line) == ("accounts", 2 + line.count("\n"))
    assert HASH not in str(caught.value) and "secret" not in str(caught.value).replace("a secret", "")


def test_a_file_that_is_missing_or_binary_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccountsError, match="no such file"):
        read_password_file(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(AccountsError, match="not UTF-8"):
        read_password_file(tmp_path / "binary")


def test_an_unknown_user_is_checked_at_the_cost_of_most_others() -> None:
    dear = hash_password(b"x", time_cost=2, memory_cost_kib=16, parallelism=1)
    file = parse_password_file(f"a:{HASH}\nb:{HASH}\nc:{dear}\n")
    stored, is_real = file.password_hash("nobody")
    assert not is_real and stored.split("$")[:4] == HASH.split("$")[:4]
    assert not verify_password(stored, b"secret")


def test_neither_file_nor_account_shows_what_it_holds() -> None:
    file = parse_password_file(f"ada:{HASH}\nada:{KEYS}\n")
    assert repr(file) == "PasswordFile(1 accounts)" and repr(file.accounts["ada"]) == "Account()"


def test_a_proof_that_is_gone_or_changed_is_revoked_and_a_new_one_is_not() -> None:
    other = hash_password(b"secret", **CHEAP)
    old = parse_password_file(
        f"same:{HASH}\ngone:{HASH}\nchanged:{HASH}\nboth:{HASH}\nboth:{KEYS}\nmore:{HASH}\n"
    )
    new = parse_password_file(
        f"same:{HASH}\nchanged:{other}\nboth:{HASH}\nmore:{HASH}\nmore:{KEYS}\nnew:{HASH}\n"
    )
    assert new.revoked_since(old) == {"gone", "changed", "both"}
    assert PasswordFile({}).revoked_since(new) == set(new.accounts)


@pytest.mark.parametrize(
    "name", ["", "a:b", "a\nb", "a\x7f", "\x85", " a", "a ", "#a", "a\u2028b", "x" * 1025]
)
def test_a_name_that_would_break_the_file_is_refused(name: str) -> None:
    assert check_user_name(name)


@pytest.mark.parametrize("name", ["ada", "ada lovelace", "ädä@example.org", "CN=device/7", "a#b"])
def test_other_names_are_fine(name: str) -> None:
    assert check_user_name(name) == ""


def test_an_account_is_added_changed_and_removed_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    path.write_text(f"# by hand\nzoe:{HASH}\n\n# end\n")
    assert set_password(path, "ada", b"one")
    assert not set_password(path, "zoe", b"two")
    lines = path.read_text().split("\n")
    assert lines[0] == "# by hand" and lines[1].startswith("zoe:$") and lines[2:4] == ["", "# end"]
    accounts = read_password_file(path).accounts
    assert verify_password(accounts["ada"].password_hash or "", b"one")
    assert verify_password(accounts["zoe"].password_hash or "", b"two")
    delete_account(path, "zoe")
    assert read_password_file(path).accounts.keys() == {"ada"}
    with pytest.raises(AccountsError, match="no such account"):
        delete_account(path, "zoe")


def test_the_file_is_for_its_owner_only_whatever_it_was(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    path.touch(mode=0o644)
    set_password(path, "ada", b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["accounts"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    set_password(tmp_path / "link", "ada", b"one")
    assert (tmp_path / "link").is_symlink() and read_password_file(tmp_path / "real").accounts


def test_keys_of_an_old_password_do_not_outlive_it(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    set_password(path, "ada", b"one", scram=True, iterations=4096)
    old = read_password_file(path).accounts["ada"].scram
    set_password(path, "ada", b"two", iterations=4096)
    new = read_password_file(path).accounts["ada"].scram
    assert old is not None and new is not None
    assert new == derive_keys("two", new.salt, new.iterations)


def test_made_up_salts_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    set_password(path, "ada", b"one", scram=True, iterations=4096)
    before = read_password_file(path).scram_keys("nobody")
    set_password(path, "bob", b"two", scram=True, iterations=4096)
    assert read_password_file(path).scram_keys("nobody") == before


@pytest.mark.parametrize(
    ("user", "password", "scram"),
    [
        ("a:b", b"x", False),
        ("ada", b"", False),
        ("ada", b"x" * 5000, False),
        ("\u00aa", b"x", True),
        ("ada", b"\xff", True),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
    tmp_path: Path, user: str, password: bytes, scram: bool
) -> None:
    with pytest.raises(AccountsError):
        set_password(tmp_path / "accounts", user, password, scram=scram)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    path.write_text("nonsense\n")
    with pytest.raises(AccountsError):
        set_password(path, "ada", b"one")
    assert path.read_text() == "nonsense\n"


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    threads = [threading.Thread(target=set_password, args=(path, f"u{i}", b"x")) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_password_file(path).accounts.keys() == {f"u{i}" for i in range(8)}
