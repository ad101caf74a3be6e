"""The crash suite: kill a broker under load again and again, and count what it forgot.

`make soak` runs 200 kills. The broker is a real process; it dies by SIGKILL at a random moment after at least 1 000
acknowledged messages, and also while it starts (recovery) and while `tidegate store compact` runs. Clients of both
protocol versions publish and receive at QoS 1 and 2, some come and go, subscriptions and retained messages change, and
wills are due. Afterwards every message that was published must have arrived, in order, once at QoS 2. A seed repeats
the decisions of a run, not the timing of the machine.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from tests.crash.clients import Client, Endpoint, Publisher, Subscriber
from tests.crash.ledger import GroupReceived, Ledger, Received
from tests.crash.process import BrokerProcess, kill_command
from tests.crash.state import Checker, Mortal, RetainedWriter, SubscriptionWriter
from tidegate.broker.store.maintenance import check
from tidegate.broker.store.store import FILE_NAME
from tidegate.mqtt.properties import Property

SETUP_DEADLINE = 30.0
LOAD_DEADLINE = 60.0
DRAIN_DEADLINE = 120.0
AWAY = 0.3  # longest time a wandering client is there or away


@dataclass(slots=True)
class Report:
    """What a run found."""

    seed: int
    kills: int = 0
    kills_in_recovery: int = 0
    kills_in_compaction: int = 0
    acknowledged: int = 0
    fewest_between_kills: int = 0
    lost: int = 0
    duplicates: int = 0
    repetitions_at_qos1: int = 0
    retained_changes: int = 0
    subscription_changes: int = 0
    wills: int = 0
    start_seconds_median: float = 0.0
    start_seconds_longest: float = 0.0
    starts_over_5_seconds: int = 0
    # Of the longest starts: seconds, seconds of CPU of the broker, load average of the machine.
    longest_starts: list[tuple[float, float, float]] = field(default_factory=list)
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


class Soak:
    """One run on one data folder."""

    def __init__(self, folder: Path, seed: int, kills: int, messages: int) -> None:
        self.random = Random(seed)
        self.kills = kills
        self.messages = messages
        self.ledger = Ledger()
        self.report = Report(seed)
        self.broker = BrokerProcess(folder / "data", log=folder / "broker.log")
        self.endpoint = Endpoint(self.broker.port)
        self.checked = Endpoint(self.broker.port)  # for those who must not change anything before the check
        self._starts: list[float] = []
        self._start_costs: list[tuple[float, float, float]] = []
        self._compact_seconds = 1.0
        self._make_clients()

    def _make_clients(self) -> None:
        ledger, endpoint, random = self.ledger, self.endpoint, self.random
        self.publishers = [
            Publisher(endpoint, ledger, f"p{qos}v{version}{kind}", version, qos, 16, random)
            for qos in (1, 2)
            for version in (4, 5)
            for kind in ("", "-wandering")
        ]
        self.mortals = [Mortal(endpoint, ledger, f"mortal{kind}", 5, kind == 1) for kind in (0, 1)]
        self.retained = [RetainedWriter(self.checked, ledger, f"r{v}", v, random) for v in (4, 5)]
        self.subscribed = [SubscriptionWriter(self.checked, ledger, f"c{v}", v, random) for v in (4, 5)]
        wills = {mortal.name: mortal for mortal in self.mortals}

        def on_will(topic: str, payload: bytes) -> None:
            wills[topic.removeprefix("wills/")].on_will(payload)

        self.sinks: list[Received | GroupReceived] = []
        self.subscribers: list[Subscriber] = []
        for version in (4, 5):
            for qos in (1, 2):
                for kind in ("", "-wandering"):
                    sink = Received(ledger, f"s{qos}v{version}{kind}", qos == 2)
                    self.sinks.append(sink)
                    filters = {"load/#": qos}
                    is_watcher = version == 5 and qos == 2 and not kind
                    if is_watcher:
                        filters["wills/#"] = 2
                    self.subscribers.append(
                        Subscriber(
                            endpoint,
                            ledger,
                            sink.name,
                            version,
                            filters,
                            sink,
                            on_will if is_watcher else None,
                        )
                    )
        # A smaller window, so that a queue waits behind it; the kill finds some sent, some not.
        self.subscribers[-1].properties[Property.RECEIVE_MAXIMUM] = 100
        group = GroupReceived(ledger, "group")
        self.sinks.append(group)
        for member in ("one", "two-wandering"):
            filters = {"$share/g/load/2/+/a": 2}
            self.subscribers.append(Subscriber(endpoint, ledger, f"group-{member}", 5, filters, group))

    @property
    def clients(self) -> list[Client]:
        return [*self.publishers, *self.subscribers, *self.retained, *self.subscribed, *self.mortals]

    # -- a run ----------------------------------------------------------------------------------------------

    async def run(self) -> Report:
        began = time.monotonic()
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        try:
            await self._start()
            self.checked.is_open.set()
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._live(client)) for client in self.clients]
                await self._wait(
                    lambda: all(s.is_subscribed.is_set() for s in self.subscribers), SETUP_DEADLINE
                )
                self._set_active(True)
                for cycle in range(1, self.kills + 1):
                    await self._cycle(cycle)
                    if self.ledger.faults:
                        break
                await self._drain()
                for task in running:
                    task.cancel()
        finally:
            self.endpoint.is_open.clear()
            self.checked.is_open.clear()
            for client in self.clients:
                await client.close()
            self.broker.kill()
        self._check_file("at the end")
        return self._finish(time.monotonic() - began)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A client that stumbles over a packet is a fault of the run."""
        self.ledger.fault(f"{context['message']}: {context.get('exception')!r}")

    async def _live(self, client: Client) -> None:
        if client.name.endswith("-wandering"):
            await client.wander(self.random, AWAY)
        else:
            await client.run()

    def _set_active(self, is_active: bool) -> None:
        for publisher in self.publishers:
            publisher.is_active = is_active
            publisher.pump()
        for writer in (*self.retained, *self.subscribed):
            writer.is_active = is_active
            if writer.is_connected:
                writer.on_connected(session_present=True)

    async def _cycle(self, cycle: int) -> None:
        """Load, kill, perhaps more kills while nobody is connected, start, check."""
        before = self.ledger.acknowledged_total
        await self._wait(lambda: self.ledger.acknowledged_total - before >= self.messages, LOAD_DEADLINE)
        await asyncio.sleep(self.random.uniform(0, 0.2))
        self._kill()
        self.report.kills += 1
        count = self.ledger.acknowledged_total - before
        fewest = self.report.fewest_between_kills
        self.report.fewest_between_kills = min(fewest, count) if fewest else count
        if self.random.random() < 0.25 or cycle == 2:
            await self._kill_compaction()
            self._check_file(f"after kill {cycle}")
        while self.random.random() < 0.25 or (cycle == 1 and not self.report.kills_in_recovery):
            await self._kill_recovery()
        await self._start()
        await Checker(self.endpoint, self.ledger).check(self.retained, self.subscribed, cycle)
        self.checked.is_open.set()
        self._show(cycle)

    def _kill(self) -> None:
        self.endpoint.is_open.clear()
        self.checked.is_open.clear()
        for mortal in self.mortals:
            if mortal.is_connected:
                mortal.die()
        self.broker.kill()

    async def _start(self) -> None:
        self.broker.spawn()
        await asyncio.to_thread(self.broker.wait_ready)
        self._starts.append(self.broker.start_seconds)
        cost = (self.broker.start_seconds, self.broker.start_cpu_seconds, os.getloadavg()[0])
        self._start_costs.append(cost)
        self.endpoint.is_open.set()

    async def _kill_recovery(self) -> None:
        """Kill the broker while it starts; the longest start so far is the range of moments."""
        self.broker.spawn()
        await asyncio.sleep(self.random.uniform(0, max(self._starts)))
        self.broker.kill()
        self.report.kills_in_recovery += 1

    async def _kill_compaction(self) -> None:
        seconds = await asyncio.to_thread(
            kill_command, self.random.uniform(0, self._compact_seconds), "store", "compact", self.broker.data
        )
        if seconds is None:
            self.report.kills_in_compaction += 1
        else:
            self._compact_seconds = seconds

    def _check_file(self, when: str) -> None:
        for problem in check(self.broker.data).problems:
            self.ledger.fault(f"store {when}: {problem}")
        for aside in self.broker.data.glob(f"{FILE_NAME}.damaged*"):
            self.ledger.fault(f"store {when}: {aside.name} was set aside")

    async def _drain(self) -> None:
        """Stop publishing; everything published must arrive."""
        self._set_active(False)

        def is_done() -> bool:
            return (
                all(p.is_idle for p in self.publishers)
                and all(sink.is_complete() for sink in self.sinks)
                and all(w.changing is None for w in (*self.retained, *self.subscribed))
                and not any(w.probes for w in self.subscribed)
                and not any(m.missing() for m in self.mortals)
            )

        try:
            await self._wait(is_done, 5.0 if self.ledger.faults else DRAIN_DEADLINE)
        except TimeoutError:
            for sink in self.sinks:
                for text in sink.missing():
                    self.ledger.lost += 1
                    self.ledger.fault(text)
            for mortal in self.mortals:
                for life in mortal.missing():
                    self.ledger.fault(f"{mortal.name}: will {life!r} never came")
            for owner in self.subscribed:
                for probe in owner.probes:
                    self.ledger.fault(f"{owner.name}: {probe} never came")
            for publisher in self.publishers:
                if not publisher.is_idle:
                    self.ledger.fault(f"{publisher.name}: not everything was acknowledged")

    async def _wait(self, condition: Callable[[], bool], timeout: float) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(0.01)

    # -- what is told ---------------------------------------------------------------------------------------

    def _show(self, cycle: int) -> None:
        print(
            f"\r{cycle}/{self.kills} kills, {self.ledger.acknowledged_total} acknowledged, "
            f"{self.ledger.lost} lost, {self.ledger.duplicates} duplicates, last start {self._starts[-1]:.2f} s ",
            end="" if sys.stderr.isatty() else "\n",
            file=sys.stderr,
            flush=True,
        )

    def _finish(self, seconds: float) -> Report:
        report, ledger = self.report, self.ledger
        report.acknowledged = ledger.acknowledged_total
        report.lost, report.duplicates = ledger.lost, ledger.duplicates
        report.repetitions_at_qos1 = ledger.repetitions
        report.retained_changes = sum(writer.changes for writer in self.retained)
        report.subscription_changes = sum(writer.changes for writer in self.subscribed)
        report.wills = sum(len(mortal.owed) for mortal in self.mortals)
        starts = sorted(self._starts)
        report.start_seconds_median = round(starts[len(starts) // 2], 2)
        report.start_seconds_longest = round(starts[-1], 2)
        report.starts_over_5_seconds = sum(start >= 5 for start in starts)
        report.longest_starts = sorted(self._start_costs, reverse=True)[:5]
        report.seconds = round(seconds, 1)
        report.faults = ledger.faults
        return report


def run(folder: Path, *, seed: int, kills: int, messages: int) -> Report:
    return uvloop.run(Soak(folder, seed, kills, messages).run())
