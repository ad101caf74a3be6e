"""Where new subscribers of a topic go."""

from tidegate.flow.placement.base import Correlation, PlacementPolicy, unrelated
from tidegate.flow.placement.correlation import RateHistory
from tidegate.flow.placement.packing import pack, pack_exactly, worst_of
from tidegate.flow.placement.rules import AnyNode, OneNode, Spread

__all__ = [
    "AnyNode",
    "Correlation",
    "OneNode",
    "PlacementPolicy",
    "RateHistory",
    "Spread",
    "pack",
    "pack_exactly",
    "unrelated",
    "worst_of",
]
