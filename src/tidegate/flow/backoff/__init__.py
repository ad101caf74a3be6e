"""How long a publisher that is too fast must wait."""

from tidegate.flow.backoff.adaptive import AdaptiveBackoff, AdaptivePublisher, AdaptiveSettings
from tidegate.flow.backoff.base import (
    REFUSE,
    BackoffPolicy,
    Event,
    Load,
    Mode,
    Prior,
    Publisher,
    State,
    Verdict,
)
from tidegate.flow.backoff.identity import Identity, IdentityTable
from tidegate.flow.backoff.off import NoBackoff
from tidegate.flow.backoff.paper import PaperBackoff, PaperPublisher

__all__ = [
    "REFUSE",
    "AdaptiveBackoff",
    "AdaptivePublisher",
    "AdaptiveSettings",
    "BackoffPolicy",
    "Event",
    "Identity",
    "IdentityTable",
    "Load",
    "Mode",
    "NoBackoff",
    "PaperBackoff",
    "PaperPublisher",
    "Prior",
    "Publisher",
    "State",
    "Verdict",
]
