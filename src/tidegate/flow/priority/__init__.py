"""In which order waiting messages are served."""

from tidegate.flow.priority.ageing import AgeingPriority
from tidegate.flow.priority.base import PriorityPolicy
from tidegate.flow.priority.classes import BULK, NORMAL, URGENT, Band, Classes, InvalidRule, Rule
from tidegate.flow.priority.off import NoPriority
from tidegate.flow.priority.order import SortedRates
from tidegate.flow.priority.paper import PaperPriority

__all__ = [
    "BULK",
    "NORMAL",
    "URGENT",
    "AgeingPriority",
    "Band",
    "Classes",
    "InvalidRule",
    "NoPriority",
    "PaperPriority",
    "PriorityPolicy",
    "Rule",
    "SortedRates",
]
