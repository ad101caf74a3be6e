"""Log lines: the right shape for the reader at hand, and safe whatever a client calls itself."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tidegate import log


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored_logger() -> Iterator[None]:
    logger = logging.getLogger(log.ROOT)
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


def written(
    stream: io.StringIO, format: str = "auto", environ: dict[str, str] | None = None, **extra: object
) -> str:
    log.configure("info", format, stream=stream, environ=environ or {})
    logging.getLogger("tidegate.net").warning("handshake failed", extra=extra)
    return stream.getvalue()


def test_a_pipe_gets_one_json_object_a_line() -> None:
    line = json.loads(written(io.StringIO(), peer="127.0.0.1:9", attempts=3))
    moment = line.pop("ts")
    assert moment.endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "tidegate.net",
        "message": "handshake failed",
        "peer": "127.0.0.1:9",
        "attempts": 3,
    }


def test_a_terminal_gets_a_short_coloured_line() -> None:
    line = written(Terminal(), peer="127.0.0.1:9")
    assert "\x1b[33mwarning" in line
    assert "peer=127.0.0.1:9" in line


def test_no_color_switches_colour_off() -> None:
    line = written(Terminal(), environ={"NO_COLOR": "1"}, peer="x")
    assert "\x1b" not in line
    assert line.endswith("warning  net  handshake failed  peer=x\n")


@pytest.mark.parametrize(
    "stream, format, is_json", [(io.StringIO(), "human", False), (Terminal(), "json", True)]
)
def test_a_format_that_was_asked_for_beats_the_kind_of_stream(stream, format: str, is_json: bool) -> None:
    assert written(stream, format).startswith("{") is is_json


@pytest.mark.parametrize("format", ["human", "json"])
@pytest.mark.parametrize("client_id", ["a\nERROR fake", "\x1b[2J", "a\rb", "\u2028x", "\x9b31m"])
def test_a_client_identifier_cannot_fake_a_line_or_steer_the_terminal(format: str, client_id: str) -> None:
    line = written(Terminal(), format, environ={"NO_COLOR": "1"}, client_id=client_id)
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()


def test_values_with_spaces_are_quoted_for_people() -> None:
    assert 'topic="a b"' in written(io.StringIO(), "human", topic="a b")


def test_a_field_cannot_hide_the_level() -> None:
    assert json.loads(written(io.StringIO(), "json", level="fake"))["level"] == "warning"


def test_configuring_twice_does_not_write_twice() -> None:
    log.configure(stream=io.StringIO(), environ={})
    assert written(io.StringIO()).count("\n") == 1


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    log.configure("error", stream=stream, environ={})
    logging.getLogger("tidegate.net").warning("not important")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("format", ["human", "json"])
def test_an_exception_comes_with_its_traceback(format: str) -> None:
    stream = io.StringIO()
    log.configure("info", format, stream=stream, environ={})
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("tidegate.broker").exception("unexpected")
    assert "ValueError: broken" in stream.getvalue()
