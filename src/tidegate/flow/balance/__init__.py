"""Which clients move from one node of a cluster to another, and when."""

from tidegate.flow.balance.base import BalancePolicy, Selection, Sharing
from tidegate.flow.balance.deadline import DeadlineBalance
from tidegate.flow.balance.detector import EdgeDetector, HeadDetector, PublishSample, QueueSample
from tidegate.flow.balance.overlay import Overlay
from tidegate.flow.balance.paper import PaperBalance
from tidegate.flow.balance.peer import PeerBalance, Unit
from tidegate.flow.balance.plain import NoBalance, RandomBalance
from tidegate.flow.balance.thresholds import BudgetRule, Path, Thresholds, edge_budget
from tidegate.flow.balance.view import Bundle, Edge, Head, Metric, Move, PublisherBundle, Reach, State

__all__ = [
    "BalancePolicy",
    "BudgetRule",
    "Bundle",
    "DeadlineBalance",
    "Edge",
    "EdgeDetector",
    "Head",
    "HeadDetector",
    "Metric",
    "Move",
    "NoBalance",
    "Overlay",
    "PaperBalance",
    "Path",
    "PeerBalance",
    "PublishSample",
    "PublisherBundle",
    "QueueSample",
    "RandomBalance",
    "Reach",
    "Selection",
    "Sharing",
    "State",
    "Thresholds",
    "Unit",
    "edge_budget",
]
