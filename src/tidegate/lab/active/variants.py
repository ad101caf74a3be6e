"""Who is compared: the four levels, level 3 in all nine combinations, and the product with and without its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.flow.timeout import (
    ActiveSettings,
    ActiveTimeout,
    AdaptiveTimeout,
    Draw,
    First,
    FixedTimeout,
    Light,
    Mediate,
    NoTimeout,
    PaperTimeout,
    Requirement,
    Rigorous,
    StrategySettings,
    TimeoutPolicy,
)
from tidegate.lab.active.model import MU, T_NET

REQUIREMENTS: dict[str, Callable[[], Requirement]] = {
    "rigorous": lambda: Rigorous(1.0 / MU, T_NET),
    "mediate": lambda: Mediate(T_NET),
    "light": Light,
}
ACTIVE = "active"
LEVEL_0, LEVEL_1, LEVEL_2 = "0 none", "1 fixed", "2 adaptive"
LEVEL_3 = "3 light, past_interval"
"""The member of the nine that a client can have without help: what others are compared with."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Variant:
    """`name` is unique; level, requirement and first choice are the columns of the event record."""

    name: str
    make: Callable[[], TimeoutPolicy]
    level: str
    requirement: str = ""
    first: str = ""
    announces_rate: bool = True


def _paper(requirement: str, first: First) -> Variant:
    return Variant(
        name=f"3 {requirement}, {first}",
        make=lambda: PaperTimeout(requirement=REQUIREMENTS[requirement], first=first),
        level="3",
        requirement=requirement,
        first=first,
    )


PAPER = tuple(_paper(requirement, first) for requirement in REQUIREMENTS for first in First)
VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(name=LEVEL_0, make=NoTimeout, level="0"),
        Variant(name=LEVEL_1, make=FixedTimeout, level="1"),
        Variant(name=LEVEL_2, make=AdaptiveTimeout, level="2"),
        *PAPER,
        Variant(name=ACTIVE, make=ActiveTimeout, level="active"),
    )
}


def _without(name: str, settings: ActiveSettings, *, announces_rate: bool = True) -> Variant:
    return Variant(
        name=f"active without {name}",
        make=lambda: ActiveTimeout(settings),
        level="active",
        announces_rate=announces_rate,
    )


# A patience of next to nothing: everybody reacts at once.
PARTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        _without("pre-delay", ActiveSettings(patience=0.0)),
        _without("pace", ActiveSettings(), announces_rate=False),
        _without("jitter", ActiveSettings(jitter=0.0, pace_jitter=0.0)),
        _without("freezing", ActiveSettings(freezes=False)),
        _without("robust test", ActiveSettings(deviations=1e-9)),
    )
}
# Of single ideas, for E3.7.
UNIFORM = "3 light, past_interval, uniform"
NDELTA = "2 adaptive, N·δ"
NO_PACE, NO_FREEZING, NO_PACE_OR_FREEZING = (
    f"active without {what}" for what in ("pace", "freezing", "pace and freezing")
)
SINGLE: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(
            name=UNIFORM,
            make=lambda: PaperTimeout(first=First.PAST_INTERVAL, draw=Draw.UNIFORM),
            level="3",
            requirement="light",
            first=First.PAST_INTERVAL,
        ),
        Variant(
            name=NDELTA, make=lambda: AdaptiveTimeout(StrategySettings(growth="ndelta")), level="2"
        ),
        _without("pace and freezing", ActiveSettings(freezes=False), announces_rate=False),
    )
}
