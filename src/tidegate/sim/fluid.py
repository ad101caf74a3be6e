"""Traffic as a fluid: queues of topics that share one uplink, stepped through time.

A step adds what arrives, shares the uplink and takes away what is sent. What waits is kept as parcels (when it came,
how much), so waits are known to within a step. A node that keeps up costs nothing per step: its counters are
settled when somebody looks, or a rate changes.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import ceil

from tidegate.flow.balance import QueueSample, Reach, Sharing
from tidegate.flow.balance.sharing import max_min

TINY = 1e-9
BINS = 200  # of waits over budgets: a twentieth each, the last for all above


class FluidQueue:
    """The copies of one topic for `subscribers` on one node; `rate` in copies per second."""

    __slots__ = (
        "arrived", "budget", "departed", "depth", "given_up", "late", "parcels", "rate", "reach", "sampled",
        "size_bytes", "subscribers", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, subscribers: int, size_bytes: float, budget: float, rate: float) -> None:
        self.topic = topic
        self.subscribers = subscribers
        self.size_bytes = size_bytes
        self.budget = budget
        self.rate = rate
        self.reach = Reach.LOCAL
        self.parcels: deque[list[float]] = deque()  # when it came, copies
        self.depth = 0.0
        self.arrived = 0.0
        self.departed = 0.0
        self.late = 0.0  # sent after the deadline, or
        self.given_up = 0.0  # not sent because of it
        self.sampled = (0.0, 0.0)

    def copy(self) -> FluidQueue:
        other = FluidQueue(self.topic, self.subscribers, self.size_bytes, self.budget, self.rate)
        other.parcels = deque([list(parcel) for parcel in self.parcels])
        other.depth = self.depth
        return other

    @property
    def bits(self) -> float:
        return self.size_bytes * 8


class FluidNode:
    """One uplink in bits per second. `waits` counts copies by their wait over their budget."""

    __slots__ = ("_calm", "_is_calm", "name", "over", "queues", "sharing", "uplink", "waits")

    def __init__(self, name: str, uplink: float, sharing: Sharing = Sharing.FAIR) -> None:
        self.name = name
        self.uplink = uplink
        self.sharing = sharing
        self.queues: dict[str, FluidQueue] = {}
        self.waits = [0.0] * BINS
        self.over = 0.0  # seconds in which more was asked for than the uplink has
        self._calm = 0.0  # seconds since the counters were settled in which nothing waited
        self._is_calm = True

    # -- changing -------------------------------------------------------------------------------------------

    def add(self, queue: FluidQueue) -> None:
        self.settle()
        known = self.queues.get(queue.topic)
        if known is None:
            self.queues[queue.topic] = queue
        else:
            known.subscribers += queue.subscribers
            known.rate += queue.rate

    def take(self, topic: str, clients: int) -> float:
        """Remove clients; their copies per second. What waits for them is still sent from here."""
        self.settle()
        queue = self.queues[topic]
        rate = queue.rate * clients / queue.subscribers
        queue.subscribers -= clients
        queue.rate -= rate
        if not queue.subscribers:
            queue.rate = 0.0
        return rate

    def set_rate(self, topic: str, rate: float) -> None:
        self.settle()
        self.queues[topic].rate = rate

    def set_uplink(self, uplink: float) -> None:
        self.settle()
        self.uplink = uplink

    def settle(self) -> None:
        """Bring the counters up to date; the next step looks at everything."""
        if self._calm:
            for queue in self.queues.values():
                count = queue.rate * self._calm
                queue.arrived += count
                queue.departed += count
                self.waits[0] += count
            self._calm = 0.0
        self._is_calm = False

    def copy(self) -> FluidNode:
        other = FluidNode(self.name, self.uplink, self.sharing)
        other.queues = {topic: queue.copy() for topic, queue in self.queues.items()}
        other._is_calm = False
        return other

    # -- time -----------------------------------------------------------------------------------------------

    @property
    def load_bits(self) -> float:
        return sum(queue.rate * queue.bits for queue in self.queues.values())

    def step(self, now: float, seconds: float) -> None:
        """From `now` on, so many seconds."""
        if self._is_calm:
            self._calm += seconds
            return
        load = self.load_bits
        if load > self.uplink + TINY:
            self.over += seconds
        elif not any(queue.parcels for queue in self.queues.values()):
            self._is_calm = True
            self._calm += seconds
            return
        middle = now + seconds / 2
        for queue in self.queues.values():
            count = queue.rate * seconds
            if count > 0.0:
                queue.arrived += count
                queue.depth += count
                queue.parcels.append([middle, count])
        if self.sharing is Sharing.DEADLINE:
            self._serve_by_deadline(middle, self.uplink * seconds)
        else:
            demands = {
                topic: queue.depth * queue.bits for topic, queue in self.queues.items() if queue.parcels
            }
            for topic, bits in max_min(demands, self.uplink * seconds).items():
                queue = self.queues[topic]
                self._send(queue, bits / queue.bits, middle)

    def _serve_by_deadline(self, now: float, bits: float) -> None:
        """The parcel that must be there first goes first; what is too late is given up."""
        heap: list[tuple[float, str]] = []
        for queue in self.queues.values():
            while queue.parcels and now - queue.parcels[0][0] > queue.budget + TINY:
                count = queue.parcels.popleft()[1]
                queue.depth -= count
                queue.given_up += count
                self.waits[-1] += count
            if queue.parcels:
                heap.append((queue.parcels[0][0] + queue.budget, queue.topic))
        heapify(heap)
        while heap and bits > TINY:
            _, topic = heappop(heap)
            queue = self.queues[topic]
            count = min(queue.parcels[0][1], bits / queue.bits)
            bits -= count * queue.bits
            self._send(queue, count, now)
            if queue.parcels:
                heappush(heap, (queue.parcels[0][0] + queue.budget, topic))

    def _send(self, queue: FluidQueue, count: float, now: float) -> None:
        queue.departed += count
        queue.depth -= count
        parcels = queue.parcels
        budget = queue.budget
        while count > TINY and parcels:
            parcel = parcels[0]
            sent = min(parcel[1], count)
            wait = now - parcel[0]
            if wait > budget + TINY:
                queue.late += sent
            share = wait / budget if budget > 0.0 else 2.0
            self.waits[min(BINS - 1, ceil(share * 20 - TINY))] += sent
            count -= sent
            parcel[1] -= sent
            if parcel[1] <= TINY:
                parcels.popleft()
        if not parcels:
            queue.depth = 0.0

    def finish(self, now: float) -> None:
        """The end: what is too late by now is counted, what could still be in time is not."""
        self.settle()
        for queue in self.queues.values():
            for came, count in queue.parcels:
                if now - came > queue.budget + TINY:
                    queue.late += count

    # -- looking --------------------------------------------------------------------------------------------

    def sample(self) -> list[QueueSample]:
        """What the detector of this node reads: counts since it last looked."""
        was_calm = self._is_calm
        self.settle()
        self._is_calm = was_calm
        found = []
        for queue in self.queues.values():
            before = queue.sampled
            queue.sampled = (queue.arrived, queue.departed)
            if queue.subscribers or queue.parcels:
                found.append(
                    QueueSample(
                        topic=queue.topic, subscribers=queue.subscribers, size_bytes=queue.size_bytes,
                        budget=queue.budget, arrived=queue.arrived - before[0], departed=queue.departed - before[1],
                        depth=queue.depth, reach=queue.reach,
                    )
                )  # fmt: skip
        return found

    def will_be_late(self, now: float, until: float, step: float) -> bool:
        """Whether, if nothing changes, something here is late before `until`."""
        future = self.copy()
        while now < until - TINY:
            future.step(now, step)
            if future._is_calm:
                return False
            now += step
            if any(queue.late or queue.given_up for queue in future.queues.values()):
                return True
        future.finish(now)
        return any(queue.late for queue in future.queues.values())
