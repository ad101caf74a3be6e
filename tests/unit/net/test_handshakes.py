"""The log of failed handshakes: one line a second, whatever strangers do."""

import logging
import ssl

import pytest

from tidegate.net.handshakes import HandshakeLog, describe_failure, describe_peer


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


def test_at_most_one_line_a_second_is_written_and_the_next_counts_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    failures = HandshakeLog(clock)
    with caplog.at_level(logging.DEBUG, "tidegate.net.tls"):
        for _ in range(1000):
            failures.add(("192.0.2.7", 40_000), tls_error("HTTP_REQUEST"))
            clock.now += 1 / 512
    assert [getattr(record, "unsaid", 0) for record in caplog.records] == [0, 511]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert caplog.records[0].peer == "192.0.2.7:40000"
    assert failures.failed == 1000


@pytest.mark.parametrize(
    "peer, text",
    [
        (("192.0.2.7", 1), "192.0.2.7:1"),
        (("2001:db8::1", 1, 0, 0), "[2001:db8::1]:1"),
        ("", "local"),
        (None, "local"),
    ],
)
def test_peers_are_written_as_people_write_them(peer: object, text: str) -> None:
    assert describe_peer(peer) == text


@pytest.mark.parametrize(
    "error, text",
    [
        (tls_error("HTTP_REQUEST"), "the client speaks plain HTTP"),
        (tls_error("LENGTH_MISMATCH"), "length mismatch"),
        (ConnectionAbortedError("SSL handshake is taking longer"), "SSL handshake is taking longer"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (ConnectionResetError(), "broken off by the client; perhaps it does not trust our certificate"),
    ],
)
def test_reasons_are_words(error: OSError, text: str) -> None:
    assert describe_failure(error) == text
