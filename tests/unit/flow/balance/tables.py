"""Tables V and VI of the paper, and the layout that satisfies every published statement (spec 2 (c))."""

from tidegate.flow.balance import Bundle, Edge

MBIT = 1e6
# topic: publishers, subscribers, latency in seconds, bytes
TOPICS = {
    1: (1, 8, 1.8, 200), 2: (2, 2, 1.7, 800), 3: (5, 1, 1.6, 1000), 4: (4, 2, 1.5, 400), 5: (3, 3, 1.4, 200),
    6: (1, 1, 1.3, 400), 7: (2, 5, 1.2, 300), 8: (2, 7, 1.1, 400), 9: (5, 2, 1.0, 500), 10: (4, 4, 0.9, 200),
    11: (1, 5, 30, 600), 12: (3, 2, 60, 400), 13: (1, 6, 40, 200), 14: (2, 3, 50, 300), 15: (4, 5, 100, 200),
}  # fmt: skip
BANDWIDTH = {"b0": 6.5, "b1": 8.0, "b2": 5.0, "b3": 8.0}
LAYOUT = {"b0": (6, 9, 10, 13), "b1": (1, 3, 8, 14), "b2": (5, 12, 15), "b3": (2, 4, 7, 11)}
BURST = (2, 4, 5, 8, 10, 12, 14)


def bundle(number: int, *, is_burst: bool = False, depth: float = 0.0) -> Bundle:
    publishers, subscribers, latency, size = TOPICS[number]
    rate = publishers * 50.0 * subscribers * (2 if is_burst and number in BURST else 1)
    return Bundle(
        topic=str(number),
        subscribers=subscribers,
        size_bytes=size,
        budget=latency - 0.3,
        arriving=rate,
        leaving=rate,
        depth=depth,
    )


def edge(name: str, *, is_burst: bool = False) -> Edge:
    bundles = [bundle(number, is_burst=is_burst) for number in LAYOUT[name]]
    capacity = BANDWIDTH[name] * MBIT
    return Edge(name=name, uplink=capacity, downlink=capacity, bundles={each.topic: each for each in bundles})


def overloaded_b1(seconds: float) -> Edge:
    """b1 so many seconds into the burst: topic 8 bears the whole shortage of 175 msg/s."""
    found = edge("b1", is_burst=True)
    found.bundles["8"].depth = 175.0 * seconds
    found.bundles["8"].leaving = 1225.0
    return found
