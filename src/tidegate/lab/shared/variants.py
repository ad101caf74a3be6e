"""What is compared: a rule of the broker, and members that tell it something or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from tidegate.client.load_meter import ReportOptions
from tidegate.lab.shared.scenarios import Scenario
from tidegate.lab.shared.simulate import Signal, report_options


class Kind(StrEnum):
    """Whose client the members are, over sockets."""

    TIDEGATE = "tidegate"  # QoS 0; reports by extended PINGREQ, or none
    PAHO = "paho"  # QoS 1, acknowledged after processing; paho-mqtt, which knows nothing of reports


@dataclass(slots=True, kw_only=True, frozen=True)
class Variant:
    """`signal` is what members tell; `policy` the name of the rule, and of the group over sockets."""

    name: str
    policy: str
    signal: Signal = Signal.NOTHING

    @property
    def kind(self) -> Kind:
        return Kind.PAHO if self.signal is Signal.ACKNOWLEDGED else Kind.TIDEGATE

    @property
    def qos(self) -> int:
        return 1 if self.kind is Kind.PAHO else 0

    @property
    def is_phased(self) -> bool:
        """Whether the phase of ping timers can matter."""
        return self.policy in ("thesis", "earliest_finish")

    def reports(self, interval: float) -> ReportOptions:
        """What our client is told; see `Signal`."""
        return report_options(self.signal, interval)


RANDOM = Variant(name="random", policy="random")
ROUND_ROBIN = Variant(name="round robin", policy="round_robin")
STICKY = Variant(name="sticky", policy="sticky")
HASH_CLIENT = Variant(name="hash, publisher", policy="hash_client")
HASH_TOPIC = Variant(name="hash, topic", policy="hash_topic")
LEAST_INFLIGHT = Variant(name="least in flight, QoS 1", policy="least_inflight", signal=Signal.ACKNOWLEDGED)
THESIS = Variant(name="thesis", policy="thesis", signal=Signal.THESIS)
OURS = Variant(name="earliest finish", policy="earliest_finish", signal=Signal.EVENTS)
OURS_FIXED = Variant(name="earliest finish, fixed", policy="earliest_finish", signal=Signal.TOTALS)
OURS_PAHO = Variant(name="earliest finish, QoS 1", policy="earliest_finish", signal=Signal.ACKNOWLEDGED)

HOPELESS = (STICKY, HASH_CLIENT, HASH_TOPIC)  # one publisher and one topic: one member gets everything
COMPARED = (RANDOM, ROUND_ROBIN, *HOPELESS, LEAST_INFLIGHT, THESIS, OURS, OURS_PAHO)
VARIANTS = {variant.name: variant for variant in (*COMPARED, OURS_FIXED)}


@dataclass(slots=True, kw_only=True, frozen=True)
class Slot:
    """One group of a run over sockets: its own topic, publisher and members. Plain data for the clients' processes.

    `begins`: seconds after the start of the run at which its first message is due, so that groups do not publish at
    the same instant. `phases` are those of the simulated run of the same seed.
    """

    number: int
    variant: str
    seed: int
    interval: float
    begins: float
    phases: tuple[float, ...]

    @classmethod
    def of(cls, scenario: Scenario, variant: Variant, number: int, seed: int, interval: float) -> Slot:
        random = Random(f"{seed}/phases")
        offset = random.random() * 0.01
        phases = tuple(random.random() * interval for _ in scenario.workers)
        return cls(
            number=number, variant=variant.name, seed=seed, interval=interval, begins=offset, phases=phases
        )

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Slot:
        return cls(**{**fields, "phases": tuple(fields["phases"])})

    @property
    def topic(self) -> str:
        return f"lab/{self.number}"
