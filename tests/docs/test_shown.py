"""What counts as the output that a page shows."""

import pytest

from tests.docs.shown import missing


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("tide/level 3.2", "tide/level 3.2"),
        ("0123456789ab ack after 5 ms", "0123456789ab ack after 17 ms"),
        ("20260108T010203.456789", "20261118T163734.664942"),
        ("recording to /home/me/lake (summary)", "recording to /tmp/x/lake (summary)"),
        ("head mqtt://127.0.0.1:1883 pid 4711", "head mqtt://127.0.0.1:1883 pid 99"),
        ("│ latency, median │ 0.043 ms │", "│ latency, median   │    1.9 ms │"),
        ("request caller-5a9b1c2d.3f", "request caller-01b9ffee.2c"),
        ("publish …", "publish\t3\t60"),
    ],
)
def test_measured_things_may_differ(shown: str, printed: str) -> None:
    assert missing([shown], printed) is None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("jobs done: 200", "jobs done: 199"),
        ("done: 1 moved, 0 failed, 0 stay", "done: 1 moved, 1 failed, 0 stay"),
        ("tide/level", "tide/levels"),
        ("ok", "not ok"),
        ("error: no", ""),
    ],
)
def test_words_and_counts_may_not(shown: str, printed: str) -> None:
    assert missing([shown], printed) == shown


def test_lines_come_in_their_order() -> None:
    assert missing(["a", "b"], "a\nx\nb\n") is None
    assert missing(["a", "b"], "b\na\n") == "b"
