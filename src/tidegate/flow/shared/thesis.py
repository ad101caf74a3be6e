"""The score of the thesis, exactly as spec 5 (b) gives it, for comparison.

Score = t_1 - max((m_q + m_s) * t_p - t_2, 0): t_1 since the last message to a member, t_2 since its last report. What
is wrong with it is kept: reports that cover no message count as speed 0, time without work counts as work done.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tidegate.flow.shared.load import Member

STALE: Final = 3.0  # report intervals after which a report is old (ambiguity 12)


class Thesis:
    """Highest score first, then the one that waits longest, then the smallest client id (ambiguity 7). O(n)."""

    __slots__ = ()
    is_counting = True

    def choose(
        self, members: tuple[Member, ...], topic: bytes, publisher: str, now: float, random: Random
    ) -> int:
        mean = self.group_mean(members)
        best = 0
        highest = self.score(members[0], mean, now)
        for index in range(1, len(members)):
            member = members[index]
            score = self.score(member, mean, now)
            if score > highest or (
                score == highest
                and (member.last_sent, member.key) < (members[best].last_sent, members[best].key)
            ):
                best, highest = index, score
        return best

    @staticmethod
    def group_mean(members: tuple[Member, ...]) -> float:
        """Mean processing time of those that have one (ambiguity 4); 0 if nobody has."""
        known = [member.load.mean_time for member in members if member.load.mean_time > 0.0]
        return sum(known) / len(known) if known else 0.0

    @staticmethod
    def score(member: Member, group_mean: float, now: float) -> float:
        """In seconds."""
        load = member.load
        time = load.mean_time or group_mean
        age = now - load.reported_at
        fresh = STALE * load.report_interval
        if 0.0 < fresh < age:
            # What it said is kept, and trusted less with every interval (ambiguity 12).
            time = group_mean + (time - group_mean) * fresh / age
        work = (load.queue_length + load.sent_since_report) * time - age
        return now - member.last_sent - max(work, 0.0)
