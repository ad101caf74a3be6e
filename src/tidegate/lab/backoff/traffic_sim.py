"""E1.1 on the virtual clock: one broker, some publishers, and what back-off kept back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.flow.backoff import (
    AdaptiveBackoff,
    AdaptiveSettings,
    BackoffPolicy,
    Event,
    Load,
    Mode,
    NoBackoff,
    PaperBackoff,
    Prior,
)
from tidegate.flow.priority import PaperPriority
from tidegate.lab.backoff.population import TRAINING, Label, Stream, stream
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Publish
from tidegate.sim import Arrival, Gate, Pace, Simulation, Source

SECONDS, BASE = 600.0, 60.0
TOPIC, PAYLOAD = "plant/line-{:03d}/speed", bytes(16)  # 20 bytes of topic
ORIGINAL = "original"


def adaptive(mode: Mode) -> BackoffPolicy:
    """No floor rate and a loaded node: otherwise one message a minute would never be anybody's concern."""
    policy = AdaptiveBackoff(AdaptiveSettings(floor_rate=0.0), mode=mode)
    policy.load = Load.HIGH
    return policy


VARIANTS: dict[str, Callable[[], BackoffPolicy]] = {
    ORIGINAL: NoBackoff,
    "paper, backpressure": lambda: PaperBackoff(mode=Mode.BACKPRESSURE),
    "paper, hold": lambda: PaperBackoff(mode=Mode.HOLD),
    "paper, drop": lambda: PaperBackoff(mode=Mode.DROP),
    "adaptive, backpressure": lambda: adaptive(Mode.BACKPRESSURE),
    "adaptive, drop": lambda: adaptive(Mode.DROP),
}


@dataclass(slots=True)
class Tally:
    """One publisher's messages by label, holds in seconds; `conforming` is what a policer would have passed."""

    family: str
    sent: int = 0
    anomalous: int = 0
    marked: int = 0
    innocent_marked: int = 0
    trained_marked: int = 0  # after the training
    dropped: int = 0
    innocent_dropped: int = 0
    conforming_dropped: int = 0
    hold: float = 0.0
    innocent_hold: float = 0.0
    conforming_hold: float = 0.0

    def count(self, arrival: Arrival, label: Label) -> None:
        self.sent += 1
        self.anomalous += label.is_anomalous
        self.marked += arrival.is_marked
        self.trained_marked += arrival.is_marked and arrival.number >= TRAINING
        self.dropped += arrival.is_dropped
        self.hold += arrival.hold
        if not label.is_anomalous:
            self.innocent_marked += arrival.is_marked
            self.innocent_dropped += arrival.is_dropped
            self.innocent_hold += arrival.hold
        if not label.is_rejected:
            self.conforming_dropped += arrival.is_dropped
            self.conforming_hold += arrival.hold


@dataclass(slots=True)
class Outcome:
    """One run."""

    size_bytes: int
    tallies: list[Tally] = field(default_factory=list)

    def total(self, name: str) -> int:
        return sum(int(getattr(tally, name)) for tally in self.tallies)

    def marked_after_training(self, family: str) -> float | None:
        """Share of the later messages of an innocent family that were marked; None if there are none."""
        tallies = [tally for tally in self.tallies if tally.family == family]
        later = sum(max(0, tally.sent - TRAINING) for tally in tallies)
        return sum(tally.trained_marked for tally in tallies) / later if later else None


class _Client:
    """A publisher on the virtual clock."""

    def __init__(
        self, gate: Gate, number: int, stream: Stream, base: float, pace: Pace, outcome: Outcome
    ) -> None:
        self.client_id = f"p{number}"
        self._sim = gate.sim
        self._stream = stream
        self._size_bytes = outcome.size_bytes
        self.tally = Tally(stream.family)
        outcome.tallies.append(self.tally)
        # What a policy snapshot would say; the published rule has no such thing and trains on the first messages.
        prior = None
        if isinstance(gate.policy, AdaptiveBackoff) and base > 0.0:
            prior = Prior(rate=1.0 / base, dispersion=stream.dispersion)
        self.publisher = gate.policy.publisher(self.client_id, prior)
        self._inlet = gate.open(self.publisher, self._accepted)
        self._source = Source(gate.sim, stream.intervals, self._send, pace=pace)
        self.on_sent: Callable[[_Client, Arrival, bool], None] | None = None

    def _send(self, number: int) -> None:
        now = self._sim.now
        arrival = Arrival(number=number, size_bytes=self._size_bytes, t_sent=now)
        label = self._stream.label(now)
        # It never sends while it is not read, so the message is read at this moment.
        self._inlet.send(arrival)
        self.tally.count(arrival, label)
        if self.on_sent is not None:
            self.on_sent(self, arrival, label.is_anomalous)

    def _accepted(self, arrival: Arrival) -> None:
        self._source.accepted()


class _Recorder:
    """Turns arrivals into the event record, with the ranks the paper's scheduler would give."""

    def __init__(self, run: str, mode: str, record: Callable[[Event], None]) -> None:
        self._run = run
        self._mode = mode
        self._record = record
        self._ranks = PaperPriority()

    def __call__(self, client: _Client, arrival: Arrival, is_anomalous: bool) -> None:
        publisher = client.publisher
        self._ranks.update(client.client_id, publisher.trained_rate)
        self._record(
            Event(
                run=self._run,
                broker_mode=self._mode,
                client_id=client.client_id,
                msg_seq=arrival.number,
                t_sent=arrival.t_sent,
                t_read=arrival.t_read,
                t_forwarded=arrival.t_forwarded,
                bytes=arrival.size_bytes,
                fr_avg=publisher.trained_rate,
                fr_new=publisher.snapshot(arrival.t_read).rate,
                d_f=arrival.hold,
                rank=self._ranks.rank(client.client_id),
                label_anomalous=is_anomalous,
                dropped=arrival.is_dropped,
            )
        )


def simulate(
    variant: str,
    workload: str,
    publishers: int,
    seed: int,
    *,
    base: float = BASE,
    seconds: float = SECONDS,
    pace: Pace = Pace.BLOCKED,
    training: int = TRAINING,
    make: Callable[[], BackoffPolicy] | None = None,
    is_known: bool = True,
    record: Callable[[Event], None] | None = None,
) -> Outcome:
    """One broker, one seed; `make` overrides the policy of the variant, `is_known` says whether priors are given."""
    sim = Simulation(seed)
    gate = Gate(sim, (make or VARIANTS[variant])())
    # All topics have the same length, so all packets have the same size.
    outcome = Outcome(len(encode_packet(Publish(topic=TOPIC.format(0), payload=PAYLOAD), 4)))
    recorder = _Recorder(f"e1.1/{workload}/{publishers}/{seed}", variant, record) if record else None
    for number in range(publishers):
        habit = stream(workload, number, base, sim.random(f"p{number}"), training)
        _Client(gate, number, habit, base if is_known else 0.0, pace, outcome).on_sent = recorder
    sim.run(seconds)
    return outcome


def compare(original: Outcome, other: Outcome, mode: str) -> dict[str, Any]:
    """What back-off saved, and how much of that was innocent.

    Bytes that were never sent have no label. They are shared out among the holds that kept them back, in proportion
    to the time each took; a hold is innocent if the message that caused it was.
    """
    size = other.size_bytes
    saved = innocent = conforming = 0.0
    for before, after in zip(original.tallies, other.tallies, strict=True):
        if mode == "drop":
            saved += after.dropped * size
            innocent += after.innocent_dropped * size
            conforming += after.conforming_dropped * size
        elif after.hold > 0.0 and mode == "backpressure":
            kept_back = (before.sent - after.sent) * size
            saved += kept_back
            innocent += kept_back * after.innocent_hold / after.hold
            conforming += kept_back * after.conforming_hold / after.hold
    sent, dropped = other.total("sent"), other.total("dropped")
    innocent_sent = sent - other.total("anomalous")
    original_bytes = original.total("sent") * size
    return {
        "bytes_original": original_bytes,
        "bytes_read": sent * size,
        "bytes_forwarded": (sent - dropped) * size,
        "saving_read": 1.0 - sent * size / original_bytes,
        "saving_forwarded": 1.0 - (sent - dropped) * size / original_bytes,
        "anomalous": other.total("anomalous") / sent,
        "marked": other.total("marked") / sent,
        "innocent_marked": other.total("innocent_marked") / innocent_sent,
        "poisson_marked": other.marked_after_training("Poisson"),
        "jitter_marked": other.marked_after_training("jitter 20 %"),
        "bytes_saved": saved,
        "bytes_saved_innocent": innocent,
        "bytes_saved_conforming": conforming,
        "innocent_lost": innocent / ((original.total("sent") - original.total("anomalous")) * size),
        "innocent_hold": sum(tally.innocent_hold for tally in other.tallies) / innocent_sent,
        "hold": sum(tally.hold for tally in other.tallies) / sent,
    }
