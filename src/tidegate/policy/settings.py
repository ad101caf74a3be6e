"""Which policy snapshot a node follows, and what it lets a snapshot change."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.broker.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """What the pipeline learnt, and how far the node believes it: see docs/policy.md."""

    path: str = setting("", "folder of policy snapshots; empty: none")
    poll: float = setting(2.0, "seconds between two looks at which snapshot is current", minimum=0.1)
    baselines: bool = setting(True, "a snapshot may say what is normal for a publisher that is not known yet")
    limits: bool = setting(False, "a snapshot may set quotas for publishers")
    members: bool = setting(True, "a snapshot may say how fast new members of shared subscriptions are")
    limit_floor: float = setting(1.0, "lowest quota it may set, messages per second", minimum=0)
    rate_ceiling: float = setting(
        100_000.0, "highest rate that it may call normal, messages per second; higher ones are lowered to it",
        minimum=1,
    )  # fmt: skip
    max_age: float = setting(
        0.0, "seconds after which a snapshot is too old to be taken; 0: it never is", minimum=0
    )
    max_clients: int = setting(5_000_000, "publishers in a snapshot; one with more is refused", minimum=1)
