"""Numbers of the adaptive back-off. docs/design/backoff.md tells how they were chosen and what they achieve."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(slots=True, kw_only=True, frozen=True)
class AdaptiveSettings:
    """Times in seconds, rates in messages per second, levels and depths in messages."""

    n: int = 16  # messages of training
    training_time: float = 0.5  # and its least time: the first chunk of a fast publisher is not its rate

    # The bucket: what a message adds, and how deep it is.
    allowance: float = 0.73  # CUSUM reference between 1 (the trained rate) and 1/2 (its double)
    tolerance: float = 4.0  # depth per unit of dispersion
    burst: float = 2.0  # depth per usual height of the level between two empty moments
    slack: float = 1.25  # depth that even a clock gets
    slack_time: float = (
        0.25  # and in seconds' worth: a stall of the network that is caught up, as after a lost packet
    )
    depth_max: float = 64.0  # with one second's worth, the most that learning can make of the depth
    confidence: float = 1.75  # standard errors by which the trained rate is rounded up
    evidence: float = 3.75  # kept over the depth while nobody is held; bounds the way back

    # Learning.
    memory: int = 256  # messages a Poisson stream's rate is averaged over; a regular one needs fewer
    memory_time: float = 10.0  # but at least over this time, however fast it is
    memory_dispersion: int = 512  # messages the dispersion is averaged over
    drift: float = 1.85  # a suspicious rate that is surely below this multiple is a drift, and learnt
    doubt: float = 2.0  # standard errors that make it sure
    forgive: float = 0.125  # learning of what is beyond, relative: a changed publisher is accepted at last

    # Holding.
    d_max: float = 5.0  # longest hold
    floor_rate: float = 50.0  # below it nobody is held
    population_least: int = 8  # publishers it takes to know what is usual
    population_factor: float = 16.0  # times the median rate that a stranger may send under load
    probation: float = 60.0  # good conduct before its name is its own; until then a new name continues it
    trust_doubling: float = 600.0  # good conduct that doubles what a stranger may send

    def __post_init__(self) -> None:
        if self.n < 8:
            raise ValueError("n must be at least 8: fewer intervals say nothing about dispersion")
        if not 0.5 < self.allowance < 1.0:
            raise ValueError("allowance must be above 0.5, the doubled rate, and below 1, the trained one")
        if not 0.0 <= self.d_max < inf or self.floor_rate < 0.0:
            raise ValueError("d_max and floor_rate must not be negative, and d_max finite")
