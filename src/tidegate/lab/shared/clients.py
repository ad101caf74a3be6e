"""The clients of a run over sockets in processes of their own: one of publishers, and one for each member number.

A process reads its plan as a line of JSON, says `ready`, reads the moment at which the run begins on the monotonic
clock, which is the same for all processes of a machine, works, and prints what it saw as a line of JSON.

Members work by sleeping. A message's work begins when the one before it ends, if it was there by then, else when it is
taken; it ends exactly so long after, however late the process is woken. So being woken late costs a message the time
it is late, which is measured, but never makes the member slower than it should be. Sleeping is by `select`, whose
timeouts are microseconds; those of `epoll` are milliseconds, and one more in 25 would be overload.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.client import Client
from tidegate.lab.shared.scenarios import SCENARIOS, Scenario
from tidegate.lab.shared.simulate import Worker
from tidegate.lab.shared.variants import VARIANTS, Slot
from tidegate.lab.statistics import percentile

PAYLOAD: Final = 100  # bytes, Table 6
STAMP: Final = struct.Struct(">Id")  # number and time of creation
LEAD: Final = 0.04  # seconds before its group's first message by which a member connects, at the latest
QUIET: Final = 1.0  # seconds without work after the last message: nothing more comes
QUEUE: Final = 10_000  # messages; more than any run has


@dataclass(slots=True)
class Plan:
    """What every process is told."""

    port: int
    scenario: Scenario
    seconds: float
    drain: float
    member: int  # of a member's process
    slots: list[Slot]

    @classmethod
    def read(cls, line: str) -> Plan:
        fields = json.loads(line)
        return cls(
            port=fields["port"],
            scenario=SCENARIOS[fields["scenario"]].until(fields["seconds"]),
            seconds=fields["seconds"],
            drain=fields["drain"],
            member=fields["member"],
            slots=[Slot.read(slot) for slot in fields["slots"]],
        )

    @property
    def worker(self) -> Worker:
        return self.scenario.workers[self.member]

    def connects_at(self, slot: Slot, start: float) -> float:
        """So that its pings have the phase that the simulator gives them; one that joins later connects then."""
        begins = start + slot.begins
        if self.worker.joins > 0.0:
            return begins + self.worker.joins
        return begins - max(slot.phases[self.member], LEAD)


@dataclass(slots=True)
class Lags:
    """How late a process was woken, in milliseconds: what the machine adds to everything measured here."""

    late: list[float] = field(default_factory=list)

    def note(self, due: float, now: float) -> None:
        self.late.append((now - due) * 1e3)

    def summary(self) -> dict[str, float]:
        late = self.late or [0.0]
        return {
            "mean": sum(late) / len(late),
            "p99": percentile(late, 0.99),
            "max": max(late),
        }


@dataclass(slots=True)
class Work:
    """One member at work: what it took and when; `until` is when it is done with all it took."""

    worker: Worker
    begins: float
    until: float = 0.0
    ids: list[int] = field(default_factory=list)
    created: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)
    left: list[tuple[int, float]] = field(default_factory=list)  # messages that were never taken

    def take(self, payload: bytes | bytearray, now: float, *, was_waiting: bool) -> float:
        """A message was taken; when it is done. `was_waiting`: it was there when the one before it was done."""
        number, created = STAMP.unpack_from(payload)
        begin = self.until if was_waiting and self.ids else now
        self.ids.append(number)
        self.created.append(created)
        self.taken.append(now)
        self.until = begin + self.worker.service(begin - self.begins)
        return self.until

    def leave(self, payload: bytes | bytearray) -> None:
        self.left.append(STAMP.unpack_from(payload))

    def record(self, reports: int, report_bytes: int) -> dict[str, Any]:
        begins = self.begins
        return {
            "ids": self.ids,
            "created": [round(at - begins, 6) for at in self.created],
            "taken": [round(at - begins, 6) for at in self.taken],
            "left": [(number, round(at - begins, 6)) for number, at in self.left],
            "end": round(time.monotonic() - begins, 6),
            "reports": reports,
            "bytes": report_bytes,
        }


def stamped(number: int) -> bytes:
    return STAMP.pack(number, time.monotonic()).ljust(PAYLOAD, b"\0")


async def sleep_until(due: float) -> None:
    """At once, but after a turn of the loop, if it is over."""
    await asyncio.sleep(max(0.0, due - time.monotonic()))


async def publish(plan: Plan, start: float) -> dict[str, Any]:
    """Publishers of all groups."""
    lags = Lags()
    clients: dict[int, Client] = {}
    address = f"mqtt://127.0.0.1:{plan.port}"
    for slot in plan.slots:
        clients[slot.number] = Client(
            address, client_id=f"{slot.number}-publisher", keep_alive=60, reports="off"
        )
        await clients[slot.number].connect()
    schedule = sorted(
        (start + slot.begins + at, number, slot.number, slot.topic, VARIANTS[slot.variant].qos)
        for slot in plan.slots
        for number, at in enumerate(plan.scenario.times)
    )
    answers = []
    for due, number, slot_number, topic, qos in schedule:
        await sleep_until(due)
        lags.note(due, time.monotonic())
        answer = clients[slot_number].publish_nowait(topic, stamped(number), qos=qos)
        if qos:
            answers.append(answer)
    await asyncio.gather(*answers)
    for client in clients.values():
        await client.disconnect()
    return {"sent": len(plan.scenario.times), "lags": lags.summary()}


async def _member(plan: Plan, slot: Slot, start: float, lags: Lags) -> dict[str, Any]:
    """One of our clients as a member, until nothing more comes."""
    work = Work(plan.worker, start + slot.begins)
    variant = VARIANTS[slot.variant]
    deadline = work.begins + plan.seconds + plan.drain
    await sleep_until(plan.connects_at(slot, start))
    client = Client(
        f"mqtt://127.0.0.1:{plan.port}",
        client_id=f"{slot.number}-member-{plan.member}",
        keep_alive=60,
        receive_queue_size=QUEUE,
        reports=variant.reports(slot.interval),
    )
    topic_filter = f"$share/{variant.policy}/{slot.topic}"
    async with client, asyncio.TaskGroup() as group:
        await client.subscribe(topic_filter)
        is_late = plan.worker.joins <= 0.0 and time.monotonic() > work.begins
        working = group.create_task(_work(client, work, lags))
        if work.begins + plan.worker.leaves < deadline:
            await sleep_until(work.begins + plan.worker.leaves)
            await client.unsubscribe(topic_filter)
        await sleep_until(work.begins + plan.seconds)
        while time.monotonic() < deadline and (len(client.messages) or time.monotonic() < work.until + QUIET):
            await asyncio.sleep(0.05)
        working.cancel()
        while (message := client.messages.get_nowait()) is not None:
            work.leave(message.payload)
        counters = client.statistics()
    # A ping and its answer.
    size = int(counters["report_bytes_sent"]) + 2 * int(counters["reports_sent"])
    return {**work.record(int(counters["reports_sent"]), size), "is_late": is_late}


async def _work(client: Client, work: Work, lags: Lags) -> None:
    while True:
        was_waiting = len(client.messages) > 0
        message = await anext(client.messages)
        due = work.take(message.payload, time.monotonic(), was_waiting=was_waiting)
        await sleep_until(due)
        lags.note(due, time.monotonic())


async def members(plan: Plan, start: float) -> dict[str, Any]:
    """The members of one number in all groups, with our client."""
    lags = Lags()
    async with asyncio.TaskGroup() as group:
        tasks = {slot.number: group.create_task(_member(plan, slot, start, lags)) for slot in plan.slots}
    return {
        "slots": {number: task.result() for number, task in tasks.items()},
        "lags": lags.summary(),
    }


def new_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main() -> None:
    role = sys.argv[1]
    plan = Plan.read(sys.stdin.readline())
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    if role == "paho":
        # Not all who run the lab have it.
        from tidegate.lab.shared.clients_paho import members as paho_members

        result = paho_members(plan, start)
    else:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            result = runner.run(publish(plan, start) if role == "publisher" else members(plan, start))
    print(json.dumps(result), flush=True)
