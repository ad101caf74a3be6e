"""Deadlines, retries, tokens, fences and windows: pure, so that every number can be checked."""

from random import Random

import pytest

from tidegate.rpc.deadline import GRACE, message_expiry, time_to_live
from tidegate.rpc.errors import RpcError
from tidegate.rpc.fencing import Fence, Recent, TokenClock, Verdict
from tidegate.rpc.inflight import Windows
from tidegate.rpc.retry import Retry


def test_one_deadline_gives_expiry_and_time_to_live() -> None:  # hazard 6
    assert message_expiry(100.0, 97.5) == 3
    assert message_expiry(100.0, 100.0) == 1  # never 0
    assert time_to_live(100.0, 97.5) == 2.5 + GRACE
    assert time_to_live(100.0, 200.0) == GRACE


def test_waits_double_up_to_the_longest_and_keep_their_upper_half() -> None:
    retry, random = Retry(attempts=9, base=0.1, longest=1.0), Random(1)
    assert [retry.bound(n) for n in (1, 2, 3, 4, 5, 6, 500)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    for attempt in range(1, 9):
        drawn = [retry.delay(attempt, random) for _ in range(200)]
        assert retry.bound(attempt) / 2 <= min(drawn) < max(drawn) <= retry.bound(attempt)


def test_retries_end_with_the_count_and_with_the_deadline() -> None:
    retry, random = Retry(attempts=3, base=1.0), Random(2)
    assert retry.after(2, 0.0, 100.0, random) is not None
    assert retry.after(3, 0.0, 100.0, random) is None
    assert retry.after(1, 99.9, 100.0, random) is None


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": 0.0}, {"base": 2.0, "longest": 1.0}])
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RpcError):
        Retry(**wrong)  # type: ignore[arg-type]


def test_tokens_grow_even_if_the_clock_does_not() -> None:
    clock = TokenClock()
    tokens = [clock.next(now) for now in (5.0, 5.0, 4.0, 6.0)]
    assert tokens == sorted(set(tokens)) and tokens[0] == 5_000_000 and tokens[-1] == 6_000_000


def test_an_older_price_never_overwrites_a_newer_one() -> None:  # spec 4, e9: delivery in another order
    fence, price = Fence(), ""
    orders = [(token, f"key{token}", f"{token}.99") for token in range(1, 6)]
    Random(3).shuffle(orders)
    for token, key, wanted in orders:
        if fence.judge("esl", token, key) is Verdict.APPLY:
            price = wanted
    assert price == "5.99"


def test_a_repetition_is_told_from_something_newer_and_older() -> None:  # hazard 12
    fence = Fence()
    verdicts = [
        fence.judge("esl", *each) for each in ((5, "a"), (5, "a"), (4, "z"), (5, "b"), (5, "a"), (6, "a"))
    ]
    assert verdicts == [
        *(Verdict.APPLY, Verdict.DUPLICATE, Verdict.SUPERSEDED),
        *(Verdict.APPLY, Verdict.SUPERSEDED, Verdict.APPLY),
    ]
    assert fence.judge("another", 1, "a") is Verdict.APPLY


def test_the_last_keys_are_remembered_and_no_more() -> None:
    recent: Recent[int] = Recent(3)
    for number in range(5):
        recent.put(str(number), number)
    assert [recent.get(str(number)) for number in range(5)] == [None, None, 2, 3, 4]
    assert len(recent) == 3


def test_a_full_window_refuses_and_harms_no_other_gateway() -> None:
    windows = Windows(2)
    assert [windows.take("slow", 10.0, 0.0) for _ in range(3)] == [True, True, False]
    assert windows.take("quick", 10.0, 0.0)
    windows.answered("slow", 1)
    assert windows.take("slow", 11.0, 0.0)
    assert not windows.take("slow", 11.0, 9.0)
    assert windows.take("slow", 20.0, 10.5)  # what was due at 10 is forgotten


def test_windows_forget_what_was_answered() -> None:
    windows = Windows(10)
    for gateway in ("a", "b"):
        for deadline in (1.0, 2.0, 3.0):
            windows.take(gateway, deadline, 0.0)
    windows.answered("a", 5)
    windows.answered("never seen", 5)
    assert (windows.open("a"), windows.open("b"), len(windows)) == (0, 3, 3)
