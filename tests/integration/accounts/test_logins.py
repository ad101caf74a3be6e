"""Logins with user name and password against a running broker."""

import statistics
import time
from pathlib import Path

import pytest

from tests.integration.accounts.conftest import Dial, Serve, account
from tidegate.accounts.password_edit import set_password
from tidegate.mqtt import Connack, Property
from tidegate.testing.raw import ConnectionEndedError, RawClient

# The decoder gives the return codes of 3.1.1 as the reason codes they stand for.
ACCEPTED, BAD, NOT_AUTHORIZED, BANNED = 0, 0x86, 0x87, 0x8A


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("user", "password", "code"),
    [
        ("ada", b"secret", ACCEPTED),
        ("ada", b"wrong", BAD),
        ("nobody", b"secret", BAD),
        ("ada", None, BAD),
        (None, None, NOT_AUTHORIZED),
    ],
)
def test_a_login_is_answered_and_not_explained(
    serve: Serve, dial: Dial, version: int, user: str | None, password: bytes | None, code: int
) -> None:
    answer = dial(serve(), version).connect("c", username=user, password=password)
    assert answer.reason_code == code
    assert Property.REASON_STRING not in answer.properties


def test_many_clients_that_return_at_once_cost_one_check(serve: Serve, dial: Dial) -> None:
    served = serve()
    for number in range(100):
        assert dial(served).connect(f"c{number}", username="ada", password=b"secret").reason_code == ACCEPTED
    counts = served.accounts.statistics()
    assert (counts["password_checks"], counts["password_cache_hits"]) == (1, 99)


def test_packets_sent_behind_connect_wait_for_the_answer(serve: Serve, dial: Dial) -> None:
    client = dial(serve())
    client.connect("c", username="ada", password=b"secret")
    client.barrier()


def test_a_client_may_leave_while_its_password_is_checked(serve: Serve, dial: Dial) -> None:
    served = serve()
    for _ in range(5):
        client = dial(served)
        client.send_bytes(b"\x10\x1b\x00\x04MQTT\x05\xc2\x00\x00\x00\x00\x01c\x00\x03ada\x00\x05wrong")
        client.close()
    assert dial(served).connect("c", username="ada", password=b"secret").reason_code == ACCEPTED


def test_guessing_is_slowed_then_refused(serve: Serve, dial: Dial) -> None:
    served = serve(guard_failures=2, guard_refuse_after=4, guard_max_delay=0.3, guard_window=3600)
    codes, times = [], []
    for _ in range(5):
        began = time.monotonic()
        codes.append(dial(served).connect("c", username="ada", password=b"wrong").reason_code)
        times.append(time.monotonic() - began)
    assert codes == [BAD] * 4 + [BANNED]
    tick = 0.002  # a loop's timers are good to a millisecond, and its clock is read once a turn
    assert times[2] >= 0.25 - tick and times[3] >= 0.3 - tick
    assert dial(served, 4).connect("c", username="ada", password=b"secret").reason_code == NOT_AUTHORIZED


def test_a_changed_password_holds_after_a_reload(serve: Serve, dial: Dial, password_file: Path) -> None:
    served = serve()
    assert dial(served).connect("c", username="ada", password=b"secret").reason_code == ACCEPTED
    password_file.write_text(account("ada", "new"))
    served.reload()
    assert dial(served).connect("c", username="ada", password=b"secret").reason_code == BAD
    assert dial(served).connect("c", username="ada", password=b"new").reason_code == ACCEPTED
    assert not served.accounts.still_allowed("bob")


def timed(port: int, user: str) -> float:
    with RawClient(port) as client:
        began = time.perf_counter()
        answer = client.connect("c", username=user, password=b"wrong")
        assert isinstance(answer, Connack) and answer.reason_code == BAD
        return time.perf_counter() - began


@pytest.mark.serial
def test_time_does_not_tell_whether_a_user_exists(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "real"
    set_password(path, "ada", b"secret")  # at its true cost, tens of milliseconds
    served = serve(password_file=path, guard_failures=0)
    known, unknown = [], []
    for number in range(15):
        known.append(timed(served.port, "ada"))
        unknown.append(timed(served.port, f"nobody-{number}"))
    ratio = statistics.median(known) / statistics.median(unknown)
    assert min(known) > 0.005 and 0.6 < ratio < 1.7


def test_a_client_that_says_nothing_more_is_not_let_in_by_waiting(serve: Serve, dial: Dial) -> None:
    client = dial(serve())
    client.connect("c", username="ada", password=b"wrong")
    with pytest.raises(ConnectionEndedError):
        client.receive()
