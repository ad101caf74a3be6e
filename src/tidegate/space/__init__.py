"""An RDF broker: named spaces of triples, SPARQL, and standing queries that tell what changed."""

from tidegate.space.engine import Outcome, SpaceEngine
from tidegate.space.errors import Fault, SpaceError
from tidegate.space.settings import SpaceLimits
from tidegate.space.standing import Change, StandingQuery

__all__ = ["Change", "Fault", "Outcome", "SpaceEngine", "SpaceError", "SpaceLimits", "StandingQuery"]
