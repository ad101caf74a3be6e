"""Paper 2: delay-aware load management for a broker cluster (Tao, Poslad, Bigham; ICSNC 2013)."""

from tidegate.lab.cluster import draws, pinned, real, scale, special
from tidegate.lab.experiment import Paper

PAPER = Paper(
    number=2,
    name="cluster",
    title="Delay-aware load management for a broker cluster",
    source="Tao, Poslad and Bigham, ICSNC 2013; baseline PEER (Cheung and Jacobsen, ACM TOCS 28(4), 2010)",
    experiments=(
        pinned.PINNED,
        pinned.PLACED,
        draws.EXPERIMENT,
        special.SLOW,
        special.TWO_CLUSTERS,
        special.HEAD,
        scale.EXPERIMENT,
        real.EXPERIMENT,
    ),
)

__all__ = ["PAPER"]
