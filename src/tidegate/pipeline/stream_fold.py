"""What streaming state does with one more slot or minute. Pure: values in, values out, no Spark and no clock.

`step_route` is the rule of `transforms.routes` in Python; a test holds the two together. `step_rate` is for changes of
behaviour what the hourly job is too slow for: a cumulative sum over minutes, which says within minutes that a client
sends more, or less, than it used to, and when that began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import Any, Final

from tidegate.pipeline.transforms.routes import ENOUGH

TRAINING: Final = 30  # minutes with messages before anything can be called usual
ALARM: Final = (
    20.0  # log-likelihood ratio, e^20 to 1: one false alarm in some centuries of minutes, for ideal counts
)
CALM: Final = 10  # usual minutes in a row after which a change is over
GAIN: Final = 0.02  # weight of a usual minute: what is usual may drift, over an hour and not over minutes
SPREAD_FLOOR: Final = 1.0  # of the variance over the mean: nobody is trusted to be more regular than chance
QUIET_MINUTES: Final = 1440  # silence of which no more than this is looked at minute by minute


@dataclass(slots=True, kw_only=True)
class Route:
    """Of one device. `known`: gateway to smoothed strength and slots since it was heard."""

    gw: str | None = None
    flaps: int = 0
    known: dict[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def second(self) -> str | None:
        others = [(rssi, gw) for gw, (rssi, _) in self.known.items() if gw != self.gw]
        return max(others)[1] if others else None


def step_route(route: Route, heard: dict[str, tuple[float, int]], hysteresis: float, age: int) -> Route:
    """One more slot. `heard`: gateway to mean strength and number of advertisements."""
    known: dict[str, tuple[float, int]] = {}
    for gw, (rssi, count) in heard.items():
        before = route.known.get(gw)
        now = rssi if before is None else before[0] + count / (count + ENOUGH) * (rssi - before[0])
        known[gw] = (now, 0)
    for gw, (rssi, slots) in route.known.items():
        if gw not in heard and slots + 1 < age:
            known[gw] = (rssi, slots + 1)
    if not known:
        return Route(gw=None, flaps=route.flaps)
    best_rssi, best = max((rssi, gw) for gw, (rssi, _) in known.items())
    own = None if route.gw is None else known.get(route.gw)
    if own is not None and best_rssi <= own[0] + hysteresis:
        return Route(gw=route.gw, flaps=route.flaps, known=known)
    return Route(gw=best, flaps=route.flaps + (route.gw is not None), known=known)


@dataclass(slots=True, kw_only=True)
class Rate:
    """Of one client. `mean` and `spread` (variance over mean) are of usual minutes; `kind` while it is different."""

    minute: int = -1
    trained: int = 0
    mean: float = 0.0
    squares: float = 0.0
    spread: float = SPREAD_FLOOR
    up: float = 0.0
    up_since: int = -1
    down: float = 0.0
    down_since: int = -1
    kind: str = ""
    changed: int = -1
    messages: float = 0.0
    minutes: int = 0
    calm: int = 0


@dataclass(slots=True, kw_only=True)
class Change:
    """`minute` since 1970 in which it began; rates in messages per second."""

    minute: int
    kind: str
    before: float
    after: float
    score: float
    is_over: bool


def step_rate(rate: Rate, minute: int, count: int, ratio: float) -> list[Change]:
    """`count` messages in a minute; those since the last one it had messages in were silent. Changes `rate`."""
    found: list[Change] = []
    if rate.minute >= 0:
        for silent in range(max(rate.minute + 1, minute - QUIET_MINUTES), minute):
            found += _minute(rate, silent, 0, ratio)
    found += _minute(rate, minute, count, ratio)
    rate.minute = minute
    return found


def _minute(rate: Rate, minute: int, count: int, ratio: float) -> list[Change]:
    if rate.trained < TRAINING:
        _train(rate, count)
        return []
    if rate.kind:
        return _changed(rate, count, ratio)
    # Counts whose variance is `spread` times their mean: scaled down they are about as good as Poisson's.
    scaled, mean = count / rate.spread, rate.mean / rate.spread
    rate.up, rate.up_since = _sum(rate.up, rate.up_since, minute, scaled * log(ratio) - mean * (ratio - 1))
    low = 1 / ratio
    rate.down, rate.down_since = _sum(
        rate.down, rate.down_since, minute, scaled * log(low) - mean * (low - 1)
    )
    for kind, score, since in (("faster", rate.up, rate.up_since), ("slower", rate.down, rate.down_since)):
        if score >= ALARM:
            rate.kind, rate.changed, rate.calm = kind, since, 0
            rate.messages, rate.minutes = float(count), 1
            return [_change(rate, score, is_over=False)]
    if not rate.up and not rate.down:
        rate.mean += GAIN * (count - rate.mean)
    return []


def _sum(score: float, since: int, minute: int, gain: float) -> tuple[float, int]:
    if score <= 0.0:
        since = minute
    score = max(0.0, score + gain)
    return score, since if score > 0.0 else -1


def _train(rate: Rate, count: int) -> None:
    rate.trained += 1
    before = rate.mean
    rate.mean += (count - before) / rate.trained
    rate.squares += (count - before) * (count - rate.mean)
    if rate.mean > 0.0:
        rate.spread = max(SPREAD_FLOOR, rate.squares / rate.trained / rate.mean)


def _changed(rate: Rate, count: int, ratio: float) -> list[Change]:
    rate.messages += count
    rate.minutes += 1
    # Nearer to what was usual than to the change, on a logarithmic scale.
    edge = rate.mean * (ratio**0.5 if rate.kind == "faster" else ratio**-0.5)
    is_calm = count <= edge if rate.kind == "faster" else count >= edge
    rate.calm = rate.calm + 1 if is_calm else 0
    if rate.calm < CALM:
        return []
    over = _change(rate, ALARM, is_over=True)
    rate.kind, rate.up, rate.down = "", 0.0, 0.0
    return [over]


def _change(rate: Rate, score: float, *, is_over: bool) -> Change:
    minutes = max(rate.minutes - rate.calm, 1)
    return Change(
        minute=rate.changed,
        kind=rate.kind,
        before=rate.mean / 60.0,
        after=rate.messages / minutes / 60.0,
        score=score / ALARM,
        is_over=is_over,
    )


def as_fields(state: Any) -> dict[str, Any]:
    """A state of this module as JSON can hold it."""
    return {name: getattr(state, name) for name in state.__slots__}


def route_of(fields: dict[str, Any]) -> Route:
    return Route(
        gw=fields["gw"], flaps=fields["flaps"], known={gw: (r, s) for gw, (r, s) in fields["known"].items()}
    )
