"""What was promised and what arrived, exactly: the judge of the crash suite.

Messages of one topic are numbered from 0 by their one publisher. A subscriber that was there from the beginning must
see 0, 1, 2, …: a higher number is a gap (a loss, or a message out of order), a lower one a repetition. Repetitions are
allowed at QoS 1 only, and the first delivery of each number must be in order there, too. So one counter a topic says
everything, however long the run is.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Ledger:
    """The whole run."""

    published: Counter[str] = field(default_factory=Counter)  # topic: how many numbers were given out
    acknowledged: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lost: int = 0
    duplicates: int = 0
    repetitions: int = 0  # at QoS 1, where they are allowed

    @property
    def acknowledged_total(self) -> int:
        return self.acknowledged.total()

    def fault(self, text: str) -> None:
        self.faults.append(text)


@dataclass(slots=True)
class Received:
    """What one subscriber got of the numbered topics. `exactly_once`: it subscribed at QoS 2."""

    ledger: Ledger
    name: str
    exactly_once: bool
    next: Counter[str] = field(default_factory=Counter)

    def add(self, topic: str, number: int, qos: int) -> None:
        expected = self.next[topic]
        if number == expected:
            self.next[topic] = number + 1
        elif number > expected:
            self.ledger.lost += number - expected
            self.ledger.fault(f"{self.name}: {topic} jumps from {expected - 1} to {number}")
            self.next[topic] = number + 1
        elif qos == 2:
            self.ledger.duplicates += 1
            self.ledger.fault(f"{self.name}: {topic} has {number} again, {expected} was due")
        else:
            self.ledger.repetitions += 1

    def is_complete(self) -> bool:
        return all(self.next[topic] == count for topic, count in self.ledger.published.items())

    def missing(self) -> list[str]:
        return [
            f"{self.name}: {topic} ends at {self.next[topic]} of {count}"
            for topic, count in self.ledger.published.items()
            if self.next[topic] != count
        ]


@dataclass(slots=True)
class GroupReceived:
    """What the members of a shared subscription got together: every number once, in any order between members."""

    ledger: Ledger
    name: str
    seen: dict[str, set[int]] = field(default_factory=dict)

    def add(self, topic: str, number: int, qos: int) -> None:
        seen = self.seen.setdefault(topic, set())
        if number in seen:
            self.ledger.duplicates += 1
            self.ledger.fault(f"{self.name}: {topic} has {number} again")
        seen.add(number)

    def is_complete(self) -> bool:
        return not self.missing()

    def missing(self) -> list[str]:
        return [
            f"{self.name}: {topic} has {len(seen)} of {self.ledger.published[topic]}"
            for topic, seen in self.seen.items()
            if len(seen) != self.ledger.published[topic]
        ]
