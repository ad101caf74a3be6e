"""Policy snapshots: what the pipeline learnt, in a form that nodes take while they run. Needs pyarrow when used."""

from tidegate.policy.errors import PolicyError
from tidegate.policy.settings import PolicySettings
from tidegate.policy.store import PolicyStore

__all__ = ["PolicyError", "PolicySettings", "PolicyStore"]
