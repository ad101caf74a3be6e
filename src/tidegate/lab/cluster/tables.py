"""Tables V and VI of the paper, the layout and burst that satisfy every published statement, and random draws."""

from __future__ import annotations

from random import Random

from tidegate.sim.cluster import NodeSpec, Topic

MBIT = 1e6
PER_MHZ = 10.0  # matching rate in messages per second and MHz (ambiguity 9): it never binds
# broker: MHz, Mbit/s
TABLE_5 = {"b0": (800, 6.5), "b1": (1500, 8.0), "b2": (1300, 5.0), "b3": (1000, 8.0)}
HEAD = (2000, 20.0)
# topic: publishers, subscribers, latency in seconds, bytes
TABLE_6 = {
    1: (1, 8, 1.8, 200), 2: (2, 2, 1.7, 800), 3: (5, 1, 1.6, 1000), 4: (4, 2, 1.5, 400), 5: (3, 3, 1.4, 200),
    6: (1, 1, 1.3, 400), 7: (2, 5, 1.2, 300), 8: (2, 7, 1.1, 400), 9: (5, 2, 1.0, 500), 10: (4, 4, 0.9, 200),
    11: (1, 5, 30.0, 600), 12: (3, 2, 60.0, 400), 13: (1, 6, 40.0, 200), 14: (2, 3, 50.0, 300),
    15: (4, 5, 100.0, 200),
}  # fmt: skip
LAYOUT = {"b0": (6, 9, 10, 13), "b1": (1, 3, 8, 14), "b2": (5, 12, 15), "b3": (2, 4, 7, 11)}
BURST = (2, 4, 5, 8, 10, 12, 14)
BURST_AT = 30.0
ALLOWED_FROM = 31.0
BURST_TOPICS = 7

# Draws (E2.3): what the paper says its topics are drawn from. Most draws ask for far more than the edges have; those
# are taken whose uplinks, before the burst, are about as full as with Table VI (64.6 %).
FILL = (0.55, 0.72)
CRITICAL = 10


def edges(head: str = "h") -> dict[str, NodeSpec]:
    return {
        name: NodeSpec(bandwidth=mbit * MBIT, matching=mhz * PER_MHZ, head=head)
        for name, (mhz, mbit) in TABLE_5.items()
    }


def head_spec() -> NodeSpec:
    return NodeSpec(bandwidth=HEAD[1] * MBIT, matching=HEAD[0] * PER_MHZ)


def topics(head: str = "h") -> dict[str, Topic]:
    return {
        str(number): Topic(
            name=str(number),
            publishers=publishers,
            subscribers=subscribers,
            latency=latency,
            size_bytes=size,
            head=head,
        )
        for number, (publishers, subscribers, latency, size) in TABLE_6.items()
    }


def pinned() -> dict[str, str]:
    """Edge of each topic."""
    return {str(number): edge for edge, numbers in LAYOUT.items() for number in numbers}


def uplink_bits(topic: Topic) -> float:
    return topic.publishers * topic.rate * topic.subscribers * topic.size_bytes * 8


def draw(random: Random) -> tuple[dict[str, Topic], list[str]]:
    """Fifteen topics in the paper's ranges, ten of them critical, and seven that burst."""
    capacity = sum(mbit for _, mbit in TABLE_5.values()) * MBIT
    while True:
        found = {}
        for number in range(1, 16):
            latency = random.uniform(0.9, 1.8) if number <= CRITICAL else random.uniform(30.0, 100.0)
            found[str(number)] = Topic(
                name=str(number),
                publishers=random.randint(1, 5),
                subscribers=random.randint(1, 8),
                latency=latency,
                size_bytes=random.randint(200, 1000),
            )
        fill = sum(uplink_bits(topic) for topic in found.values()) / capacity
        if FILL[0] <= fill <= FILL[1]:
            return found, sorted(random.sample(sorted(found), BURST_TOPICS), key=int)
