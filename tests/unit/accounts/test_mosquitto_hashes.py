"""Hashes that mosquitto_passwd has written are checked as Mosquitto does."""

import pytest

from tidegate.accounts.errors import AccountsError
from tidegate.accounts.password_file import parse_password_file
from tidegate.accounts.passwords import MAX_PASSWORD, verify_password

# Written by mosquitto_passwd 2.0.11 for the password "secret", without -H and with -H sha512.
PBKDF2 = (
    "$7$101$1U5u8RfteLn1LD6Y$"
    "VGiEoH46OBxV9sh9ajRv3ywMhnWIC4RGyD4MocEav882t6yPOxfe5Vx3uhXh1xeFYo9CbrWnuQ7o29zhJBdsWA=="
)
SHA512 = (
    "$6$T+hh2aIZV65MsAwU$"
    "L1yroK6481LAO9ZMWzVxkWfdiac2D3Q+0XjY3NCJHAIz/Ypl1rX6QoVZ2jqWWnpAanNSwNirOpjS5VzoB/bXBg=="
)


@pytest.mark.parametrize("stored", [PBKDF2, SHA512])
def test_the_right_password_fits_and_no_other(stored: str) -> None:
    file = parse_password_file(f"ada:{stored}\n")
    assert file.password_hash("ada") == (stored, True)
    assert verify_password(stored, b"secret")
    assert not any(
        verify_password(stored, wrong) for wrong in (b"", b"Secret", b"secret\n", b"x" * (MAX_PASSWORD + 1))
    )


@pytest.mark.parametrize("stored", [PBKDF2, SHA512])
def test_an_unknown_user_costs_what_others_do(stored: str) -> None:
    made_up, is_real = parse_password_file(f"ada:{stored}\n").password_hash("nobody")
    assert not is_real
    assert made_up.rsplit("$", 2)[0] == stored.rsplit("$", 2)[0] and made_up != stored
    assert not verify_password(made_up, b"secret")


@pytest.mark.parametrize(
    "stored",
    [
        "$7$",
        "$7$101$c2FsdA==",
        PBKDF2.replace("$101$", "$0$"),
        PBKDF2.replace("$101$", "$99999999$"),
        PBKDF2.replace("$101$", "$many$"),
        PBKDF2[:-4],
        SHA512[:-4] + "!!!!",
        SHA512.replace("$6$", "$6$5$"),
    ],
)
def test_a_hash_that_mosquitto_cannot_have_written_is_refused(stored: str) -> None:
    with pytest.raises(AccountsError) as caught:
        parse_password_file(f"ada:{stored}\n", "accounts")
    assert caught.value.line == 1
