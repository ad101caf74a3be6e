"""E1.4: which messages are marked, and were they the right ones? New: the paper gives no such numbers.

Publishers of known habit send 500 innocent messages, then 250 at twice their rate (`quality.measure`). Besides, there
is one that drifts, which is innocent, and two attackers that a rate rule invites (`attacks`): one that is fast from its
first message, so that fast is what is learnt, and one that takes a new client id before it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tidegate.flow.backoff import AdaptiveBackoff, AdaptiveSettings, BackoffPolicy, Load, PaperBackoff
from tidegate.lab.backoff import detection_page
from tidegate.lab.backoff.attacks import ATTACKS, attack
from tidegate.lab.backoff.quality import DETECTABLE, Quality, measure, train
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.statistics import columns, summarise_all
from tidegate.sim.workloads import FAMILIES, drift

FIRST_SEED = 300_000  # no setting was chosen on these
NORMAL, FAST, SPEED = 500, 250, 2.0
DRIFT = "drift ×2"
DRIFT_START, DRIFT_LENGTH, DRIFT_MESSAGES = 300, 200, 800

Make = Callable[..., BackoffPolicy]


def _adaptive(**changes: Any) -> Make:
    return lambda **more: AdaptiveBackoff(AdaptiveSettings(**{**changes, **more}))


def _paper(margin: float) -> Make:
    return lambda **_: PaperBackoff(margin=margin)


# The adaptive policy without one of its parts, as far as its settings can take it away.
VARIANTS: dict[str, Make] = {
    "paper": _paper(1.0),
    "paper, margin 1.5": _paper(1.5),
    "adaptive": _adaptive(),
    "adaptive, dispersion ignored": _adaptive(tolerance=0.0, burst=0.0),
    "adaptive, bursts ignored": _adaptive(burst=0.0),
    "adaptive, no slack": _adaptive(slack=0.01, slack_time=0.0),
    "adaptive, no margin of error": _adaptive(confidence=0.0),
    "adaptive, no re-learning": _adaptive(memory=10**9, forgive=0.0, drift=1.0),
    "adaptive, training of 64": _adaptive(n=64),
}


def _quality(quality: Quality, held: Quality) -> dict[str, Any]:
    """`held` is the same traffic while the load is HIGH, when suspicion has consequences."""
    return {
        "false_positive_rate": quality.false_positive_rate if quality.innocent else None,
        "recall": quality.recall if quality.guilty else None,
        "precision": quality.precision if quality.guilty and quality.is_any_marked else None,
        "innocent_hold": held.innocent_hold / held.innocent if held.innocent else None,
        "guilty_hold": held.guilty_hold / held.guilty if held.guilty else None,
    }


def _under_load(make: Make) -> BackoffPolicy:
    # No floor: at one message a second it would hide every hold.
    policy = make(floor_rate=0.0)
    policy.load = Load.HIGH
    return policy


def _drifting(policy: BackoffPolicy, seed: int) -> Quality:
    """A publisher with 5 % jitter whose rate doubles within 200 messages, for good. Nothing of it is guilty."""
    quality = Quality()
    random = Random(seed)
    publisher = policy.publisher("p")
    habit = FAMILIES["jitter 5 %"](random)
    now = train(publisher, habit, 0.0)
    stream = drift(habit, start=DRIFT_START, length=DRIFT_LENGTH, speed=SPEED)
    for _ in range(DRIFT_MESSAGES):
        now += next(stream)
        quality.count(publisher, publisher.observe(now), is_guilty=False)
    return quality


def _one(variant: str, family: str, seed: int) -> dict[str, Any]:
    make = VARIANTS[variant]
    if family == DRIFT:
        return _quality(_drifting(make(), seed), _drifting(_under_load(make), seed))
    options: dict[str, Any] = {
        "seeds": 1,
        "first_seed": seed,
        "normal": NORMAL,
        "fast": FAST,
        "speed": SPEED,
    }
    return _quality(measure(make, family, **options), measure(lambda: _under_load(make), family, **options))


def run(context: Context) -> dict[str, Any]:
    count = context.number_of_seeds(200, 12)
    attack_seeds = min(count, 3 if context.is_quick else 10)
    families = [*FAMILIES, DRIFT]
    cases = [(variant, family) for variant in VARIANTS for family in families]
    values: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    for variant, family in context.follow("e1.4 detection", cases):
        seeds = [
            {"seed": seed, **_one(variant, family, seed)} for seed in range(FIRST_SEED, FIRST_SEED + count)
        ]
        summary.append({"variant": variant, "family": family, **summarise_all(seeds, without=("seed",))})
        values.append({"variant": variant, "family": family, "seeds": columns(seeds)})
    trials = [(variant, kind) for variant in ("paper", "paper, margin 1.5", "adaptive") for kind in ATTACKS]
    for variant, kind in context.follow("e1.4 attacks", trials):
        seeds = [
            {"seed": seed, **attack(kind, VARIANTS[variant], seed)}
            for seed in range(FIRST_SEED, FIRST_SEED + attack_seeds)
        ]
        summary.append({"variant": variant, "family": kind, **summarise_all(seeds, without=("seed",))})
        values.append({"variant": variant, "family": kind, "seeds": columns(seeds)})
    return {
        "parameters": {
            "families": families,
            "innocent messages": NORMAL,
            "messages at the higher rate": FAST,
            "higher rate": f"{SPEED:g} times",
            "messages before it counts as detectable": DETECTABLE,
            "drift": f"doubles over {DRIFT_LENGTH} of {DRIFT_MESSAGES} messages, 5 % jitter, all innocent",
            "attacks": ATTACKS,
            "seeds": f"{count} from {FIRST_SEED}; attacks {attack_seeds}",
            "load": "LOW for marks; HIGH and floor_rate 0 for holds",
        },
        "summary": summary,
        "seeds": values,
    }


EXPERIMENT = Experiment(
    name="e1.4-detection",
    title="Detection quality",
    question="Of the messages that are marked as too fast, how many were; of those that were, how many are marked; "
    "and what does it cost the innocent?",
    run=run,
    present=detection_page.present,
    parts=(Part.SIM,),
)
