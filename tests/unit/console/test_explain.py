"""Words for what the numbers say."""

from typing import Any

import pytest

from tidegate.console.explain import last_choice, notes
from tidegate.console.feed import GROUPS, LOAD, PUBLISHERS, QUEUES, Feed, SharedGroup


def member(client: str, **more: Any) -> dict[str, Any]:
    return {"client": client, "connected": True, "service_ms": 5.0, "share": 0.5, "outstanding": 0} | more


def group(policy: str, *members: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": "crew",
        "filter": "jobs/+",
        "policy": policy,
        "total": len(members),
        "members": list(members),
    }


@pytest.mark.parametrize(
    "policy, members, words",
    [
        ("earliest_finish", [], ""),
        ("earliest_finish", [member("a")], ""),
        ("earliest_finish", [member("a", sent_ago_ms=3)], "a: it is the only member"),
        (
            "earliest_finish",
            [member("a", sent_ago_ms=3, expected_ms=2.0), member("b", expected_ms=40.0, outstanding=9)],
            "a: it gets to a message first, in 2.0 ms, with nothing to do; next is b, in 40.0 ms, with 9 ahead",
        ),
        (
            "earliest_finish",
            [member("a", sent_ago_ms=3, expected_ms=9.0, outstanding=1), member("b", expected_ms=0.1)],
            "a: it was free first. Now b is next, at once, with nothing to do, and a in 9.0 ms, with 1 ahead of it.",
        ),
        (
            "earliest_finish",
            [member("a", sent_ago_ms=3, service_ms=0), member("b", service_ms=0)],
            "a: nobody has told its speed yet",
        ),
        ("round_robin", [member("a", sent_ago_ms=9), member("b", sent_ago_ms=3)], "b: members take turns"),
        ("least_inflight", [member("a", sent_ago_ms=1), member("b")], "a: it had the fewest"),
    ],
)
def test_why_the_last_choice_fell(policy: str, members: list[dict[str, Any]], words: str) -> None:
    said = last_choice(SharedGroup.read(group(policy, *members)))
    assert said.startswith(words)
    assert bool(said) == bool(words)


def feed(**documents: Any) -> Feed:
    found = Feed()
    topics = {"load": LOAD, "publishers": PUBLISHERS, "queues": QUEUES, "groups": GROUPS}
    for name, content in documents.items():
        found.documents[topics[name]] = (
            content if name == "load" else {"rows": content, "total": len(content)}
        )
    return found


def test_a_calm_node_needs_no_words() -> None:
    assert notes(feed(load={"state": "LOW"}, publishers=[{"client": "a", "state": "normal"}]), {}) == []


def test_what_is_bad_comes_first() -> None:
    publishers = [{"client": "camera", "state": "held", "rate": 400.0, "trained_rate": 10.0}]
    queues = [
        {"client": "archive", "queued_messages": 5_000},
        {"client": "wall", "is_blocked": True, "dropped": 7},
    ]
    members = [
        member("quick", service_ms=5.0),
        member("slow", service_ms=90.0, share=0.05),
        member("mid", is_stalled=True),
    ]
    found = notes(
        feed(load={"state": "OVERLOAD"}, publishers=publishers, queues=queues, groups=[group("x", *members)]),
        {},
    )
    assert [note["level"] for note in found] == ["bad", "warn", "warn", "warn", "warn", "good"]
    text = " ".join(note["text"] for note in found)
    for words in (
        "camera is let through at 400/s",
        "mid of $share/crew/jobs/+ stalled",
        "5,000 messages wait for archive",
        "wall does not read",
        "slow of $share/crew/jobs/+ takes 90.0 ms a message and gets 5%",
    ):
        assert words in text


def test_suspicion_without_load_is_handled() -> None:
    (note,) = notes(feed(load={"state": "LOW"}), {"suspicious": 3})
    assert (note["level"], note["page"]) == ("good", "publishers")
