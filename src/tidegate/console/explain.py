"""Words for what the numbers say: why a member was chosen, and what an operator should look at first. Pure."""

from __future__ import annotations

from typing import Any, Final

from tidegate.console.feed import Feed, GroupMember, SharedGroup

_RULES: Final = {
    "random": "every member has the same chance",
    "round_robin": "members take turns",
    "sticky": "one member gets everything until it is full or leaves",
    "hash_client": "a publisher's messages always go to the same member",
    "hash_topic": "a topic's messages always go to the same member",
}
LONG_QUEUE: Final = 1_000  # messages that are worth a word
SLOW: Final = 3.0  # times the median time a message takes from which on a member is called slow


def last_choice(group: SharedGroup) -> str:
    """Why the latest message went where it went, as far as the node's report tells; empty if there was none."""
    sent = [member for member in group.members if member.sent_ago_ms is not None]
    if not sent:
        return ""
    chosen = min(sent, key=lambda member: member.sent_ago_ms or 0.0)
    present = [member for member in group.members if member.is_connected and not member.is_stalled]
    others = [member for member in present if member is not chosen]
    name = chosen.client
    if len(present) == 1 and not others:
        return f"{name}: it is the only member that is here and answers."
    if group.policy in _RULES:
        return f"{name}: {_RULES[group.policy]} ({group.policy})."
    if group.policy == "least_inflight":
        return f"{name}: it had the fewest unfinished messages, now {chosen.outstanding}."
    if group.policy == "thesis":
        return f"{name}: it had the lowest score of queue, speed and age of its last report."
    if not others:
        return f"{name}: nobody else is here."
    best = min(others, key=lambda member: member.expected_ms)
    if not chosen.service_ms and not best.service_ms:
        return f"{name}: nobody has told its speed yet, so members take turns."
    if chosen.expected_ms <= best.expected_ms:
        return f"{name}: it gets to a message first, {_wait(chosen)}; next is {best.client}, {_wait(best)}."
    # What it was given is in these numbers already, so another one is first now.
    return f"{name}: it was free first. Now {best.client} is next, {_wait(best)}, and {name} {_wait(chosen)}."


def _wait(member: GroupMember) -> str:
    ahead = f"with {member.outstanding} ahead of it" if member.outstanding else "with nothing to do"
    if member.expected_ms < 0.5:
        return f"at once, {ahead}"
    return f"in {_time(member.expected_ms)}, {ahead}"


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms" if milliseconds < 1_000 else f"{milliseconds / 1e3:.1f} s"


def notes(feed: Feed, states: dict[str, Any]) -> list[dict[str, str]]:
    """What is going on, the worst first: `level` bad, warn or good, `text`, and the `page` that shows more."""
    found: list[dict[str, str]] = []

    def say(level: str, text: str, page: str) -> None:
        found.append({"level": level, "text": text, "page": page})

    state = feed.load.get("state")
    if state == "OVERLOAD":
        say("bad", "More arrives than the node can serve. New clients are let in slowly.", "overview")
    elif state == "HIGH":
        say("warn", "Messages wait for their turn: rare senders are served first.", "publishers")
    held = [row for row in feed.publishers if row.state == "held"]
    if held:
        names = ", ".join(row.client for row in held[:3])
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        first = held[0]
        through = f"; {first.client} is let through at {first.rate:,.3g}/s" if first.rate else ""
        say("warn", f"Held because they are too fast: {names}{more}{through}.", "publishers")
    elif isinstance(states.get("suspicious"), int) and states["suspicious"]:
        say(
            "good",
            f"{states['suspicious']:,} publishers are over their habit; the node keeps up.",
            "publishers",
        )
    for group in feed.groups:
        _group_notes(group, say)
    for queue in feed.queues[:20]:
        if queue.is_blocked:
            say(
                "warn",
                f"{queue.client} does not read what it is sent; {queue.dropped:,} dropped.",
                "overview",
            )
        elif queue.messages >= LONG_QUEUE:
            where = "is slow" if queue.is_connected else "is away"
            say("warn", f"{queue.messages:,} messages wait for {queue.client}, which {where}.", "overview")
    order = {"bad": 0, "warn": 1, "good": 2}
    return sorted(found, key=lambda note: order[note["level"]])[:8]


def _group_notes(group: SharedGroup, say: Any) -> None:
    name = f"$share/{group.group}/{group.filter}"
    stalled = [member.client for member in group.members if member.is_stalled]
    if stalled:
        say("warn", f"{', '.join(stalled[:3])} of {name} stalled; its messages went to others.", "groups")
    speeds = sorted(member.service_ms for member in group.members if member.service_ms)
    if len(speeds) >= 2:
        median = speeds[(len(speeds) - 1) // 2]
        slow = [m for m in group.members if m.service_ms > SLOW * median and m.service_ms > 1.0]
        for member in slow[:2]:
            say(
                "good",
                f"{member.client} of {name} takes {_time(member.service_ms)} a message and gets "
                f"{member.share:.0%} of the work.",
                "groups",
            )
