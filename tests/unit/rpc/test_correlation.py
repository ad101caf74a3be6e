"""Which reply belongs to which call."""

import pytest

from tidegate.rpc.correlation import Calls, Signer

SECRET = b"tide"


def calls(secret: bytes = SECRET) -> Calls[str]:
    return Calls("anna", Signer(secret), 0)


def test_a_genuine_correlation_names_its_caller() -> None:
    assert Signer(SECRET).caller(Signer(SECRET).sign("anna", 7)) == "anna"


@pytest.mark.parametrize(
    "forged",
    [
        "",
        "anna",
        "anna.7",
        "anna.7.000000000000",
        "bert" + Signer(SECRET).sign("anna", 7)[4:],
        "änna.7.ü",
        "...",
    ],
)
def test_a_forged_correlation_names_nobody(forged: str) -> None:
    assert Signer(SECRET).caller(forged) is None


def test_a_tag_made_with_another_secret_is_forged() -> None:
    assert Signer(SECRET).caller(Signer(b"other").sign("anna", 7)) is None


def test_two_calls_to_one_device_are_told_apart() -> None:  # hazard 1
    table = calls()
    first, second = table.open("esl", 10.0, "first"), table.open("esl", 10.0, "second")
    matched = table.match(first.correlation, "esl")
    assert matched is not None and matched.what == "first"
    matched = table.match(second.correlation, "esl")
    assert matched is not None and matched.what == "second"


def test_a_second_reply_reaches_no_finished_call() -> None:  # hazard 2
    table = calls()
    call = table.open("esl", 10.0, "")
    assert table.match(call.correlation, "esl") is call
    assert table.match(call.correlation, "esl") is None
    assert (table.duplicate, table.late, table.unknown) == (1, 0, 0)


def test_a_reply_after_the_deadline_is_late() -> None:
    table = calls()
    call = table.open("esl", 10.0, "")
    assert table.expire(9.9) == []
    assert table.expire(10.0) == [call]
    assert table.match(call.correlation, "esl") is None
    assert (table.duplicate, table.late, table.unknown) == (0, 1, 0)


def test_a_reply_to_no_call_is_unknown() -> None:
    table = calls()
    assert table.match(Signer(SECRET).sign("anna", 99), "esl") is None
    assert table.unknown == 1


def test_a_reply_in_the_name_of_another_device_ends_nothing() -> None:
    table = calls()
    call = table.open("esl", 10.0, "")
    assert table.match(call.correlation, "other") is None
    assert table.mismatched == 1
    assert table.match(call.correlation, "esl") is call


def test_the_next_deadline_is_that_of_an_open_call() -> None:
    table = calls()
    early, _ = table.open("a", 5.0, ""), table.open("b", 8.0, "")
    assert table.next_deadline() == 5.0
    table.close(early.correlation)
    assert table.next_deadline() == 8.0
    assert len(table.expire(100.0)) == 1
    assert table.next_deadline() is None and len(table) == 0


def test_finished_calls_leave_nothing_behind() -> None:
    table = calls()
    kept = [table.open("esl", 100.0 + number, "") for number in range(3)]
    for _ in range(10_000):
        table.match(table.open("esl", 1e6, "").correlation, "esl")
    assert len(table._deadlines) < 2000
    assert table.next_deadline() == 100.0
    assert table.expire(200.0) == kept
