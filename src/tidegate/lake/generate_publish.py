"""Hours of made-up traffic: when each client of a fleet sends, as arrays. No loop over messages or clients.

An hour is a list of segments, in which one client sends at one rate. Most clients have one; a client that goes wrong
within the hour, or belongs to a group that bursts, has several. A clock keeps its phase from segment to segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.lake.generate_fleet import (
    BURST_CLIENTS,
    BURST_SECONDS,
    CLOCK_LOST,
    HOUR,
    JITTER,
    JITTER20,
    ONOFF,
    POISSON,
    REPEAT,
    STUTTER,
    Fleet,
    Floats,
    Ints,
    Random,
    rhythm,
)

TENS = 10  # messages of an on/off device at a time
PAIR_SECONDS = 0.005  # between a message and its repetition


@dataclass(slots=True, kw_only=True)
class Hour:
    """Messages of one hour in order of arrival; times in µs since the start of all. A gap of -1 is unknown."""

    client: NDArray[np.int32]
    at_us: Ints
    gap_us: Ints
    topic: NDArray[np.int32]
    size: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.client)


@dataclass(slots=True)
class _Segments:
    client: Ints
    begin: Floats
    end: Floats
    rate: Floats
    regularity: Ints


class Traffic:
    """Hours must be asked for in order: clocks and gaps go on from one to the next."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._seed = seed
        self._last_us = np.full(fleet.clients, -1, dtype=np.int64)
        self._phase = np.random.default_rng([seed, 7]).random(fleet.clients)
        self._index = 0

    def next_hour(self, hour_of_day: int, day: int) -> Hour:
        rng = np.random.default_rng([self._seed, 11, self._index])
        begin = self._index * HOUR
        self._index += 1
        segments = self._segments(begin, hour_of_day, day, rng)
        client, at, number = self._messages(segments, rng)
        at_us = np.clip((at * 1e6).astype(np.int64), int(begin * 1e6), int((begin + HOUR) * 1e6) - 1)
        gap = self._gaps(client, at_us)
        fleet = self._fleet
        topic = np.where(number % 5 == 4, fleet.second_topic[client], fleet.topic[client])
        order = np.argsort(at_us, kind="quicksort")
        client = client[order]
        return Hour(
            client=client.astype(np.int32),
            at_us=at_us[order],
            gap_us=gap[order],
            topic=topic[order].astype(np.int32),
            size=(fleet.size[client] + rng.integers(0, 16, len(client))).astype(np.int32),
        )

    def _segments(self, begin: float, hour_of_day: int, day: int, rng: Random) -> _Segments:
        fleet = self._fleet
        level = rhythm(hour_of_day, day)[fleet.site]
        # Nobody's hours are all alike: a few per cent of its own beside the rhythm that it shares.
        level *= rng.normal(1.0, 0.02, fleet.clients).clip(0.9, 1.1)
        rate = fleet.rate * level * (1.0 + fleet.drift * begin / 86_400.0)
        rate[fleet.burst_of >= 0] *= 0.05  # between bursts
        end = begin + HOUR
        everyone = np.arange(fleet.clients)
        cuts = np.stack(
            [
                np.full(fleet.clients, begin),
                fleet.onset.clip(begin, end),
                fleet.end.clip(begin, end),
                np.full(fleet.clients, end),
            ]
        )
        is_wrong = np.array([False, True, False])
        parts = []
        for number in range(3):
            has = cuts[number + 1] > cuts[number]
            who = everyone[has]
            factor = fleet.factor[who] if is_wrong[number] else 1.0
            regularity = fleet.regularity[who]
            if is_wrong[number]:
                regularity = np.where(fleet.anomaly[who] == CLOCK_LOST, POISSON, regularity)
                regularity = np.where(fleet.anomaly[who] == REPEAT, STUTTER, regularity)
            parts.append(
                _Segments(who, cuts[number][has], cuts[number + 1][has], rate[who] * factor, regularity)
            )
        parts.append(self._burst_segments(begin, rng))
        found = _Segments(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in _Segments.__slots__)
        )
        # A burst is sent on top of the base rate, so its segments overlap: order of messages is restored later.
        order = np.lexsort((found.begin, found.client))
        return _Segments(*(getattr(found, name)[order] for name in _Segments.__slots__))

    def _burst_segments(self, begin: float, rng: Random) -> _Segments:
        """Every topic of a group bursts at the same moments."""
        fleet = self._fleet
        slots = int(HOUR / BURST_SECONDS)
        clients: list[Ints] = []
        begins: list[Floats] = []
        for group in range(fleet.groups):
            count = rng.binomial(slots, fleet.burst_duty)
            starts = begin + np.sort(rng.choice(slots, size=count, replace=False)) * BURST_SECONDS
            members = np.flatnonzero(fleet.burst_of == group)
            clients.append(np.repeat(members, count))
            begins.append(np.tile(starts, len(members)))
        client = np.concatenate(clients)
        start = np.concatenate(begins)
        rate = np.full(len(client), fleet.burst_rate / BURST_CLIENTS)
        return _Segments(client, start, start + BURST_SECONDS, rate, np.full(len(client), JITTER20))

    def _messages(self, segments: _Segments, rng: Random) -> tuple[Ints, Floats, Ints]:
        """Client, time and number within the segment of each message, ordered by client and time."""
        expected = segments.rate * (segments.end - segments.begin)
        phase = self._phase[segments.client]
        is_poisson = segments.regularity == POISSON
        counts = np.ceil(expected - phase).clip(0).astype(np.int64)
        counts[is_poisson] = rng.poisson(expected[is_poisson])
        # The last segment of a client leaves its phase for the next hour.
        self._phase[segments.client] = (
            phase + np.where(is_poisson, 0, counts) - np.where(is_poisson, 0, expected)
        ) % 1.0
        total = int(counts.sum())
        ends = np.cumsum(counts)
        which = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(total) - np.repeat(ends - counts, counts)
        kind = segments.regularity[which]
        place = number + phase[which]
        jitter = np.asarray(JITTER)[kind]
        place += (rng.standard_normal(total) * jitter).clip(-0.45, 0.45)
        for special, size in ((ONOFF, TENS), (STUTTER, 2)):
            these = np.flatnonzero(kind == special)
            if len(these):
                inside = number[these] % size
                step = np.minimum(0.1 if size == TENS else PAIR_SECONDS, 0.5 / segments.rate[which[these]])
                # All of a handful begin with its first, and follow each other quickly.
                place[these] = (
                    (number[these] - inside)
                    + phase[which[these]]
                    + inside * step * segments.rate[which[these]]
                )
        with np.errstate(divide="ignore", invalid="ignore"):
            at = segments.begin[which] + place / segments.rate[which]
        poisson = np.flatnonzero(kind == POISSON)
        if len(poisson):
            at[poisson] = _uniform_sorted(which[poisson], segments, rng)
        at = np.clip(at, segments.begin[which], segments.end[which] - 1e-6)
        client = segments.client[which]
        # Bursts lie upon the base rate of their clients; all others are in order already.
        loose = np.flatnonzero(self._fleet.burst_of[client] >= 0)
        if len(loose):
            order = np.lexsort((at[loose], client[loose]))
            at[loose] = at[loose][order]
        return client, at, number

    def _gaps(self, client: Ints, at_us: Ints) -> Ints:
        """Microseconds since the client's message before; messages are ordered by client and time."""
        gap = np.empty(len(client), dtype=np.int64)
        if not len(client):
            return gap
        gap[1:] = at_us[1:] - at_us[:-1]
        first = np.flatnonzero(np.concatenate([[True], client[1:] != client[:-1]]))
        known = self._last_us[client[first]]
        gap[first] = np.where(known < 0, -1, at_us[first] - known)
        last = np.concatenate([first[1:], [len(client)]]) - 1
        self._last_us[client[last]] = at_us[last]
        # Jitter may turn two neighbours round by a hair where two segments meet.
        np.maximum(gap, np.where(gap == -1, -1, 0), out=gap)
        return gap


def _uniform_sorted(which: Ints, segments: _Segments, rng: Random) -> Floats:
    """Ordered uniform moments within each segment: sums of exponentials over their total, so nothing is sorted."""
    steps = rng.standard_exponential(len(which))
    sums = np.cumsum(steps)
    first = np.flatnonzero(np.concatenate([[True], which[1:] != which[:-1]]))
    sizes = np.diff(np.concatenate([first, [len(which)]]))
    before = np.repeat(sums[first] - steps[first], sizes)
    last = first + sizes - 1
    total = np.repeat(sums[last] + rng.standard_exponential(len(first)) - (sums[first] - steps[first]), sizes)
    share = (sums - before) / total
    return segments.begin[which] + share * (segments.end[which] - segments.begin[which])
