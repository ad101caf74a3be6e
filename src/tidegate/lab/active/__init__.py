"""Paper 3: active control of information updates (Bogoiavlenskaia, Korzun, Kulakov 2019)."""

from tidegate.lab.active import alarms, joint, levels, parts, real
from tidegate.lab.experiment import Paper

PAPER = Paper(
    number=3,
    name="active",
    title="Active control of information updates",
    source="Bogoiavlenskaia, Korzun, Kulakov: adaptive timeout and random back-off of knowledge processors at a "
    "semantic information broker (FRUCT 24, 2019). The paper has no experiments; these answer its plan",
    experiments=(
        levels.SLIDES,
        levels.RANDOM,
        levels.SLOWED,
        alarms.EXPERIMENT,
        joint.EXPERIMENT,
        real.EXPERIMENT,
        parts.EXPERIMENT,
    ),
)

__all__ = ["PAPER"]
