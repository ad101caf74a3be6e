"""What can be set about the durable store."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.broker.settings import setting


class Durability(StrEnum):
    """When a QoS 1 or 2 message that a persistent session must get is acknowledged."""

    COMMIT = "commit"  # after it is on disk
    RELAXED = "relaxed"  # at once; a crash may lose the last moments


class OnDamage(StrEnum):
    """What a start does that finds the store file damaged."""

    RECOVER = "recover"  # go on with what can be read, and say what was lost
    REFUSE = "refuse"  # do not start


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Times in seconds, sizes in bytes."""

    durability: Durability = setting(
        Durability.COMMIT,
        "acknowledge after the commit, or at once (relaxed: a crash may lose the last moments)",
    )
    max_uncommitted_bytes: int = setting(
        67_108_864, "bytes that may wait for the disk before QoS 1 and 2 publishers are held", minimum=65_536
    )
    memory_queue: int = setting(
        1_000,
        "messages of one session kept in memory as well; the rest of its queue is on disk only",
        minimum=10,
    )
    memory_queue_bytes: int = setting(
        1_048_576, "bytes of these messages; beyond, they are on disk only as well", minimum=1_024
    )
    on_damage: OnDamage = setting(
        OnDamage.RECOVER,
        "a damaged file: set it aside and go on with what can be read (recover), or do not start (refuse)",
    )
    plausible_downtime: float = setting(
        2_592_000.0,
        "seconds a node may be down by its clock; across a longer time, or one backwards, nothing expires: the clock "
        "was wrong",
        minimum=0,
    )
    retry: float = setting(0.5, "seconds between attempts while the disk is full or failing", minimum=0.01)
