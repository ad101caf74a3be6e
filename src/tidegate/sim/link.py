"""One direction of a network path."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tidegate.sim.clock import Simulation


class Link:
    """Carries things in order: each takes its size over the bandwidth, then the delay.

    `delay` and `jitter` in seconds (jitter is uniform from 0), `bandwidth` in bytes per second, `loss` the share that
    vanishes. What is lost has used the bandwidth. Like TCP, nothing overtakes: jitter may bunch, not reorder.
    """

    __slots__ = (
        "_arrival",
        "_free",
        "_random",
        "_sim",
        "bandwidth",
        "bytes_sent",
        "delay",
        "jitter",
        "loss",
        "lost",
    )

    def __init__(
        self,
        sim: Simulation,
        name: str,
        *,
        delay: float = 0.0,
        jitter: float = 0.0,
        bandwidth: float = inf,
        loss: float = 0.0,
    ) -> None:
        if delay < 0.0 or jitter < 0.0 or bandwidth <= 0.0 or not 0.0 <= loss <= 1.0:
            raise ValueError("delay and jitter are not negative, bandwidth is positive, loss a share")
        self._sim = sim
        self._random = sim.random(f"link/{name}")
        self._free = 0.0  # when the sender's end is free again
        self._arrival = 0.0  # of the last thing
        self.delay = delay
        self.jitter = jitter
        self.bandwidth = bandwidth
        self.loss = loss
        self.bytes_sent = 0
        self.lost = 0

    def send(self, size_bytes: int, deliver: Callable[[], None]) -> bool:
        """Call `deliver` when it has arrived; False if it never will."""
        sim = self._sim
        self._free = max(self._free, sim.now) + size_bytes / self.bandwidth
        self.bytes_sent += size_bytes
        # Drawn whether needed or not: changing one parameter leaves the other's draws as they were.
        lost, late = self._random.random() < self.loss, self._random.random() * self.jitter
        if lost:
            self.lost += 1
            return False
        self._arrival = max(self._arrival, self._free + self.delay + late)
        sim.at(self._arrival, deliver)
        return True
