"""The event record of spec 5 (c): one message of a simulated run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.lab.shared.simulate import Outcome


@dataclass(slots=True, kw_only=True)
class SharedEvent:
    """Times in seconds from the start of the run; `ping_phase` is that of the member that was chosen."""

    run: str
    policy: str
    msg_id: int
    t_created: float
    t_selected: float
    member: int
    score: float | None
    m_q: int
    m_s: int
    t_p: float
    t_dequeued: float
    t_done: float
    ping_phase: float


def record_run(run: str, policy: str, outcome: Outcome, record: Callable[[SharedEvent], None]) -> None:
    for delivery in outcome.deliveries:
        record(
            SharedEvent(
                run=run,
                policy=policy,
                msg_id=delivery.msg_id,
                t_created=delivery.t_created,
                t_selected=delivery.t_selected,
                member=delivery.member,
                score=delivery.score,
                m_q=delivery.m_q,
                m_s=delivery.m_s,
                t_p=delivery.t_p,
                t_dequeued=delivery.t_dequeued,
                t_done=delivery.t_done,
                ping_phase=outcome.phases[delivery.member],
            )
        )
