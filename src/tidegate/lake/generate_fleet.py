"""A made-up fleet of devices: who sends what, how regularly, when, and which of them go wrong.

Everything is drawn once from the seed and kept in numpy arrays, one entry a client or a topic, so that an hour of
traffic is a few array operations (`generate_publish.py`). What goes wrong is planted here and told in the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Random = np.random.Generator

HOUR: Final = 3600.0

# Sites by the first level of their topics, the share of clients, and how their day looks: depth of the rhythm, the
# hour of its peak, and whether it is a shift (on or off) rather than a wave.
SITES: Final = (
    ("factory", 0.30, 0.75, 12.0, True),
    ("home", 0.30, 0.60, 20.0, False),
    ("retail", 0.20, 0.70, 15.0, False),
    ("infra", 0.20, 0.10, 3.0, False),
)
# How regular a device is: relative jitter of a clock, a Poisson stream, or ten messages at a time.
CLOCK, JITTER5, JITTER20, POISSON, ONOFF, STUTTER = range(6)
JITTER: Final = (0.001, 0.05, 0.20, 0.0, 0.02, 0.02)
REGULARITY: Final = (
    ("clock", 0.30),
    ("jitter5", 0.30),
    ("jitter20", 0.20),
    ("poisson", 0.15),
    ("onoff", 0.05),
)
REGULARITY_NAMES: Final = (*(name for name, _ in REGULARITY), "stutter")

# What goes wrong. Faulty: it speeds up, repeats itself, falls silent, loses its clock. Hostile: it floods.
NORMAL, SPEEDUP, FLOOD, REPEAT, SILENCE, CLOCK_LOST = range(6)
ANOMALIES: Final = ("normal", "speedup", "flood", "repeat", "silence", "clock_lost")
ANOMALY_SHARE: Final = (0.0, 0.35, 0.25, 0.15, 0.15, 0.10)
LEAST_PER_HOUR: Final = (
    30.0  # messages an hour below which nothing is planted: no hour could tell it from chance
)

BURST_TOPICS: Final = 4  # topics of one burst group
BURST_CLIENTS: Final = 5  # clients of one such topic
BURST_SHARE: Final = 0.10  # of all messages
BURST_LEAST_RATE: Final = 6.0  # messages per second of a topic in a burst: makes ρ at least 6/7
BURST_SECONDS: Final = 20.0


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Clients in order of their number; the clients of burst groups come last."""

    client_ids: list[str]
    site: Ints
    regularity: Ints
    rate: Floats  # messages per second, mean over a day
    drift: Floats  # relative change a day
    size: Ints  # bytes of a packet
    qos: Ints
    node: Ints
    topic: Ints
    second_topic: Ints
    anomaly: Ints
    onset: Floats  # seconds from the start; infinite for none
    end: Floats
    factor: Floats  # times the rate while it lasts
    topics: list[str]
    topic_group: Ints  # burst group of a topic, -1 for none
    burst_of: Ints  # burst group of a client, -1 for none
    burst_rate: float  # messages per second of one topic in a burst
    burst_duty: float  # share of the time that a group bursts
    groups: int

    @property
    def clients(self) -> int:
        return len(self.client_ids)


def make_fleet(
    rows: int,
    start: datetime,
    hours: int,
    clients: int,
    topics: int,
    nodes: int,
    anomalies: float,
    rng: Random,
) -> Fleet:
    """A fleet that sends about `rows` messages in `hours` from `start` on."""
    groups = int(np.clip(rows // 200_000, 2, 8))
    plain_topics = max(4, topics - groups * BURST_TOPICS)
    burst_clients = groups * BURST_TOPICS * BURST_CLIENTS
    plain = max(8, clients - burst_clients)
    site = rng.choice(len(SITES), size=plain, p=[share for _, _, _, _, _, share in _sites()])
    rate = rng.lognormal(0.0, 1.0, plain)
    rate *= rows * (1.0 - BURST_SHARE) / (hours * HOUR) / rate.sum()
    names, topic, second = _plain_topics(site, plain_topics, rng)
    seconds = hours * HOUR
    burst_rate, duty = _bursts(rows, seconds, groups)
    for group in range(groups):
        names.extend(f"alarm/zone-{group:02d}/sensor-{n}/level" for n in range(BURST_TOPICS))
    burst_topic = plain_topics + np.arange(groups * BURST_TOPICS).repeat(BURST_CLIENTS)
    total = plain + burst_clients

    def both(first: NDArray[Any], rest: NDArray[Any] | float) -> NDArray[Any]:
        return np.concatenate([first, np.broadcast_to(np.asarray(rest, dtype=first.dtype), burst_clients)])

    fleet = Fleet(
        client_ids=[f"{SITES[at][0]}-{n:06d}" for n, at in enumerate(site.tolist())]
        + [f"alarm-{n:06d}" for n in range(burst_clients)],
        site=both(site, 3),
        regularity=both(
            rng.choice(len(REGULARITY), size=plain, p=[share for _, share in REGULARITY]), JITTER20
        ),
        rate=both(rate, burst_rate * duty / BURST_CLIENTS),
        drift=both(rng.uniform(-0.05, 0.05, plain), 0.0),
        size=rng.integers(40, 400, total),
        qos=rng.choice(3, size=total, p=[0.6, 0.35, 0.05]),
        node=rng.integers(0, nodes, total),
        topic=both(topic, burst_topic),
        second_topic=both(second, burst_topic),
        anomaly=np.zeros(total, dtype=np.int64),
        onset=np.full(total, np.inf),
        end=np.full(total, np.inf),
        factor=np.ones(total),
        topics=names,
        topic_group=np.concatenate([np.full(plain_topics, -1), np.arange(groups).repeat(BURST_TOPICS)]),
        burst_of=both(np.full(plain, -1), np.arange(groups).repeat(BURST_TOPICS * BURST_CLIENTS)),
        burst_rate=burst_rate,
        burst_duty=duty,
        groups=groups,
    )
    _plant(fleet, plain, hours, anomalies, rng)
    # Quiet hours, and what is too much, are part of the rows that were asked for.
    moments = [start + timedelta(hours=hour) for hour in range(hours)]
    levels = np.mean([rhythm(at.hour, at.weekday()) for at in moments], axis=0)[fleet.site]
    lasting = (fleet.end.clip(0, seconds) - fleet.onset.clip(0, seconds)) / seconds
    sent = fleet.rate * levels * (1.0 + (fleet.factor - 1.0) * lasting)
    fleet.rate[:plain] *= fleet.rate[:plain].sum() / sent[:plain].sum()
    return fleet


def _sites() -> tuple[tuple[str, float, float, float, bool, float], ...]:
    total = sum(share for _, share, *_ in SITES)
    return tuple((*each, each[1] / total) for each in SITES)


def _plain_topics(site: Ints, count: int, rng: Random) -> tuple[list[str], Ints, Ints]:
    """Names, and the two topics of each client: topics belong to a site, and so do clients."""
    owner = np.arange(count) % len(SITES)
    kinds = ("temperature", "power", "state", "position", "count")
    names = [f"{SITES[at][0]}/{n // 16:03d}/{kinds[n % 5]}-{n:05d}" for n, at in enumerate(owner.tolist())]
    per_site = [np.flatnonzero(owner == at) for at in range(len(SITES))]
    first = np.empty(len(site), dtype=np.int64)
    second = np.empty(len(site), dtype=np.int64)
    for at, own in enumerate(per_site):
        chosen = np.flatnonzero(site == at)
        first[chosen] = own[rng.integers(0, len(own), len(chosen))]
        second[chosen] = own[rng.integers(0, len(own), len(chosen))]
    return names, first, second


def _bursts(rows: int, seconds: float, groups: int) -> tuple[float, float]:
    """Rate of a topic in a burst and share of the time, so that bursts are `BURST_SHARE` of all messages."""
    mean = rows * BURST_SHARE / (groups * BURST_TOPICS * seconds)
    rate = max(BURST_LEAST_RATE, mean / 0.08)
    return rate, mean / rate


def _plant(fleet: Fleet, plain: int, hours: int, share: float, rng: Random) -> None:
    """Choose who goes wrong, how and when: never in the first third, so that there was something normal before."""
    able = np.flatnonzero(fleet.rate[:plain] * HOUR >= LEAST_PER_HOUR)
    count = min(len(able), round(share * plain))
    chosen = rng.choice(able, size=count, replace=False)
    kind = rng.choice(len(ANOMALIES), size=count, p=ANOMALY_SHARE)
    # Who is a Poisson stream, or sends by tens, has no clock to lose and repeats nothing that stands out.
    is_irregular = np.isin(fleet.regularity[chosen], (POISSON, ONOFF))
    kind[is_irregular & np.isin(kind, (CLOCK_LOST, REPEAT))] = SPEEDUP
    begin = rng.uniform(hours / 3.0, max(hours / 3.0 + 0.5, hours - 3.0), count) * HOUR
    fleet.anomaly[chosen] = kind
    fleet.onset[chosen] = begin
    is_flood = kind == FLOOD
    lasting = np.where(is_flood, begin + rng.uniform(1.5, 3.0, count) * HOUR, np.inf)
    fleet.end[chosen] = lasting
    factor = np.ones(count)
    factor[kind == SPEEDUP] = rng.uniform(2.0, 5.0, int((kind == SPEEDUP).sum()))
    factor[is_flood] = rng.uniform(10.0, 30.0, int(is_flood.sum()))
    factor[kind == REPEAT] = 2.0
    factor[kind == SILENCE] = 0.0
    fleet.factor[chosen] = factor


def rhythm(hour_of_day: int, day: int) -> Floats:
    """Times the mean rate of each site in an hour; weekends are quieter where people work."""
    found = np.empty(len(SITES))
    is_weekend = day % 7 >= 5
    for at, (name, _, depth, peak, is_shift) in enumerate(SITES):
        phase = (hour_of_day + 0.5 - peak) / 24.0
        wave = float(np.cos(2.0 * np.pi * phase))
        if is_shift:
            wave = 1.0 if abs((hour_of_day + 0.5 - peak + 12.0) % 24.0 - 12.0) < 8.0 else -2.0
            wave /= 1.0 if wave > 0 else 2.0
        level = 1.0 + depth * wave
        if is_weekend and name in ("factory", "retail"):
            level *= 0.5
        found[at] = level
    return found
