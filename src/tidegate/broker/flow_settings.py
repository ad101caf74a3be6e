"""How the broker treats publishers that are too fast and messages that have to wait: see docs/backoff.md."""

from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.broker.settings import setting
from tidegate.flow import BACKOFF, PRIORITY, SHARED, shared_policy
from tidegate.flow.backoff import AdaptiveSettings, Mode
from tidegate.flow.backoff.paper import D_MAX
from tidegate.flow.priority import BULK, NORMAL, URGENT, Band, Rule
from tidegate.flow.shared import EarliestFinish, Ordering, SharedPolicy

_ADAPTIVE = AdaptiveSettings()


class PaperTraining(StrEnum):
    """How eq (2) of the paper is read."""

    INTERVALS = "intervals"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """What happens to a publisher that is faster than it used to be."""

    policy: str = setting(
        "adaptive", "who is too fast: adaptive learns each publisher's habit", choices=BACKOFF
    )
    mode: Mode = setting(
        Mode.BACKPRESSURE,
        "backpressure: its messages wait unacknowledged and its socket is read less; hold: they are acknowledged and "
        "wait (with a data folder: as backpressure); drop: they are refused with 0x97, or dropped at QoS 0",
    )
    always: bool = setting(False, "hold also while the node keeps up; for experiments")
    d_max: float = setting(_ADAPTIVE.d_max, "adaptive: longest hold", minimum=0, maximum=3_600)
    floor_rate: float = setting(
        _ADAPTIVE.floor_rate, "adaptive: messages per second that nobody is held below", minimum=0
    )
    population_factor: float = setting(
        _ADAPTIVE.population_factor,
        "adaptive: times the median rate of all publishers that a new one may send under load",
        minimum=1,
    )
    paper_n: int = setting(4, "paper: messages of training", minimum=2)
    paper_training: PaperTraining = setting(
        PaperTraining.INTERVALS, "paper: N - 1 intervals, or N as eq (2) is printed"
    )
    paper_margin: float = setting(1.0, "paper: times the trained rate that is too fast", minimum=0.01)
    paper_d_max: float = setting(D_MAX, "paper: longest delay", minimum=0.001, maximum=3_600)

    def adaptive(self) -> AdaptiveSettings:
        return AdaptiveSettings(
            d_max=self.d_max, floor_rate=self.floor_rate, population_factor=self.population_factor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """In which order messages are served when the node falls behind."""

    policy: str = setting(
        "ageing",
        "ageing: rare senders first, nobody starves; paper: strictly; off: as they come",
        choices=PRIORITY,
    )
    patience: float = setting(
        1.0, "ageing: seconds by which the rarest sender may overtake the fastest", minimum=0, maximum=3_600
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """When the node is under load. The measure is how long a message that arrives now waits for its turn."""

    high_wait: float = setting(0.0005, "seconds of wait from which the load is HIGH", minimum=0)
    overload_wait: float = setting(0.05, "seconds of wait from which it is OVERLOAD", minimum=0)
    calm: float = setting(2.0, "seconds it must be lower before the state is lowered", minimum=0)
    probe: float = setting(
        30.0,
        "seconds after which held publishers are let go to see whether there still is a flood",
        minimum=1,
    )


class BandName(StrEnum):
    """Where a class stands among all that waits."""

    URGENT = "urgent"
    NORMAL = "normal"
    BULK = "bulk"


BANDS: dict[BandName, Band] = {BandName.URGENT: URGENT, BandName.NORMAL: NORMAL, BandName.BULK: BULK}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """One class of traffic. The first that matches decides; nothing a client says about itself counts."""

    name: str = setting("", "what it is called in `tidegate top`")
    band: BandName = setting(
        BandName.NORMAL, "urgent: before all others; normal: by rate; bulk: after all others"
    )
    topic_filter: str = setting("", "topics it is about, with wildcards; empty: any")
    user: str = setting("", "authenticated user; empty: any")
    listener: str = setting("", "address of the listener, such as mqtt://127.0.0.1:1883; empty: any")
    limit: float = setting(
        0.0,
        "messages per second for each publisher of the class, under load; 0: none; not with a topic_filter",
        minimum=0,
    )
    service: bool = setting(
        False,
        "its clients send what others ask for, such as spaces, routers and gateways: back-off never holds them; by "
        "user or listener only",
    )

    def rule(self) -> Rule:
        return Rule(
            name=self.name,
            band=BANDS[self.band],
            topic_filter=self.topic_filter or None,
            user=self.user or None,
            listener=self.listener or None,
            limit=self.limit,
            is_service=self.service,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRule:
    """How one shared subscription picks its member. The first rule that matches decides."""

    group: str = setting("", "name of the group, as in $share/NAME/filter; empty: any")
    topic_filter: str = setting("", "its topic filter, literally; empty: any")
    policy: str = setting("earliest_finish", "how it picks its member", choices=SHARED)
    ordering: Ordering = setting(
        Ordering.NONE,
        "earliest_finish: messages of one topic or publisher go to one member while it keeps up",
    )

    def make(self) -> SharedPolicy:
        if self.policy == "earliest_finish":
            return EarliestFinish(ordering=self.ordering)
        return shared_policy(self.policy)()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """All of it, as the broker takes it."""

    backoff: Backoff = field(default_factory=Backoff)
    priority: Priority = field(default_factory=Priority)
    load: LoadLimits = field(default_factory=LoadLimits)
    classes: tuple[PriorityClass, ...] = ()
    shared: tuple[SharedRule, ...] = ()
