"""How long a client that asks again and again waits in between (spec 3)."""

from tidegate.flow.timeout.active import ActiveLoop, ActiveSettings, ActiveTimeout
from tidegate.flow.timeout.announcement import NAME, UNKNOWN, Announcement, parse_announcement
from tidegate.flow.timeout.backoff import BackoffSettings, Draw, First, RandomBackoff
from tidegate.flow.timeout.base import Check, Event, Loop, TimeoutPolicy
from tidegate.flow.timeout.estimates import Losses, Sawtooth, delta_for, sawtooth
from tidegate.flow.timeout.jitter import DecorrelatedJitter
from tidegate.flow.timeout.levels import AdaptiveTimeout, FixedTimeout, NoTimeout, PaperTimeout
from tidegate.flow.timeout.overload import arrivals, point, tail
from tidegate.flow.timeout.requirement import Light, Mediate, Requirement, Rigorous, Smoothed
from tidegate.flow.timeout.robust import RobustTest
from tidegate.flow.timeout.strategy import Strategy, StrategySettings

__all__ = [
    "NAME",
    "UNKNOWN",
    "ActiveLoop",
    "ActiveSettings",
    "ActiveTimeout",
    "AdaptiveTimeout",
    "Announcement",
    "BackoffSettings",
    "Check",
    "DecorrelatedJitter",
    "Draw",
    "Event",
    "First",
    "FixedTimeout",
    "Light",
    "Loop",
    "Losses",
    "Mediate",
    "NoTimeout",
    "PaperTimeout",
    "RandomBackoff",
    "Requirement",
    "Rigorous",
    "RobustTest",
    "Sawtooth",
    "Smoothed",
    "Strategy",
    "StrategySettings",
    "TimeoutPolicy",
    "arrivals",
    "delta_for",
    "parse_announcement",
    "point",
    "sawtooth",
    "tail",
]
