"""E1.1 over sockets: Mosquitto and Tidegate, all at once, with time compressed, and the simulator beside them.

A publisher waits for each PUBACK (QoS 1), which makes it a blocked one: at QoS 0 a sender of small messages would
never notice that it is not read, because the kernel takes megabytes. The base interval is half a second. The delay
exp(rate) cannot be compressed with it, as it is no multiple of an interval; so D_max, which is a setting, is made so
small that it is the delay: 0.24 base intervals, which is what D_f is to a base interval of 6 s (the paper's example, 5
messages in 30 s). Both policies train on the same 20 messages.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from tidegate.client import Client, ClientError
from tidegate.flow.backoff import BackoffPolicy, Mode, NoBackoff, PaperBackoff
from tidegate.lab.backoff.population import stream
from tidegate.lab.backoff.traffic_sim import PAYLOAD, TOPIC, adaptive, simulate
from tidegate.lab.brokers import MOSQUITTO, BrokerProcess
from tidegate.lab.experiment import Context
from tidegate.lab.statistics import summarise
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Publish

TRAINING = 20
DELAY = 0.24  # D_f in base intervals
SYS_SECONDS = 1.0  # between two values of a $SYS counter
COUNTER = "$SYS/broker/bytes/received"
NAMES = ("Mosquitto", "off", "paper", "adaptive")


@dataclass(slots=True, kw_only=True, frozen=True)
class Plan:
    """How much is run; times in seconds."""

    sizes: tuple[int, ...] = (10, 30)
    seconds: float = 30.0
    seeds: int = 2
    base: float = 0.5

    @property
    def d_f(self) -> float:
        return DELAY * self.base

    def broker(self, name: str) -> BrokerProcess:
        if name == "Mosquitto":
            return BrokerProcess(name=MOSQUITTO)
        return BrokerProcess(settings=(f"features.sys_interval={SYS_SECONDS:g}", *self.settings(name)))

    def settings(self, name: str) -> tuple[str, ...]:
        own = {
            "paper": (f"backoff.paper_n={TRAINING}", f"backoff.paper_d_max={self.d_f:g}"),
            "adaptive": ("backoff.floor_rate=0",),
        }
        return (f"backoff.policy={name}", "backoff.always=true", *own.get(name, ()))

    def policy(self, name: str) -> BackoffPolicy:
        """The same on the virtual clock."""
        if name == "paper":
            return PaperBackoff(n=TRAINING, d_max=self.d_f)
        return adaptive(Mode.BACKPRESSURE) if name == "adaptive" else NoBackoff()


def plan(context: Context) -> Plan:
    return Plan(sizes=(10,), seconds=10.0, seeds=1, base=0.25) if context.is_quick else Plan()


def describe(context: Context) -> dict[str, Any]:
    chosen = plan(context)
    return {
        "base interval": f"{chosen.base:g} s",
        "seconds": chosen.seconds,
        "publishers": list(chosen.sizes),
        "seeds": chosen.seeds,
        "training": f"{TRAINING} messages for both policies",
        "D_f": f"{chosen.d_f:g} s, by paper_d_max",
        "brokers": {name: " ".join(chosen.settings(name)) for name in NAMES[1:]},
        "QoS": 1,
    }


def run(context: Context) -> list[dict[str, Any]]:
    """One row for each workload, size and broker."""
    chosen = plan(context)
    cases = [
        (workload, size, seed)
        for workload in ("spec", "attack")
        for size in chosen.sizes
        for seed in range(chosen.seeds)
    ]
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    for workload, size, seed in context.follow("e1.1 over sockets", cases):
        # New brokers each time: what one run taught them must not help or harm the next.
        with ExitStack() as stack:
            running = {name: stack.enter_context(chosen.broker(name)) for name in NAMES}
            counts = asyncio.run(_all(running, chosen, workload, size, seed))
        for name, count in counts.items():
            simulated = simulate(
                name,
                workload,
                size,
                seed,
                base=chosen.base,
                seconds=chosen.seconds,
                training=TRAINING,
                is_known=False,
                make=partial(chosen.policy, name),
            )
            count["simulated_messages"] = simulated.total("sent")
            found.setdefault((workload, size, name), []).append(count)
    return _rows(found)


def _rows(found: dict[tuple[str, int, str], list[dict[str, float]]]) -> list[dict[str, Any]]:
    rows = []
    for (workload, size, name), values in found.items():
        for value, original in zip(values, found[workload, size, "off"], strict=True):
            value["saving"] = 1.0 - value["bytes"] / original["bytes"]
            value["saving_counter"] = 1.0 - value["bytes_counter"] / original["bytes_counter"]
            value["simulated_saving"] = 1.0 - value["simulated_messages"] / original["simulated_messages"]
        summary = {key: summarise(value[key] for value in values) for key in values[0]}
        rows.append({"workload": workload, "publishers": size, "broker": name, **summary, "values": values})
    return rows


async def _all(
    running: dict[str, BrokerProcess], chosen: Plan, workload: str, size: int, seed: int
) -> dict[str, dict[str, float]]:
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(_one(broker, chosen, workload, size, seed))
            for name, broker in running.items()
        }
    return {name: task.result() for name, task in tasks.items()}


async def _one(broker: BrokerProcess, chosen: Plan, workload: str, size: int, seed: int) -> dict[str, float]:
    """Messages that a broker accepted, and bytes that it says it read meanwhile."""
    address = f"mqtt://127.0.0.1:{broker.port}"
    clients = [
        Client(address, client_id=f"p{number}", protocol_version=4, keep_alive=0) for number in range(size)
    ]
    async with Client(address, client_id="counter", protocol_version=4, keep_alive=0) as client:
        counter = _Counter(client)
        await client.subscribe(COUNTER)
        async with asyncio.TaskGroup() as watching:
            watch = watching.create_task(counter.watch())
            try:
                for each in clients:
                    await each.connect()
                before = await counter.read()
                began = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_publish(each, chosen, workload, number, seed, began))
                        for number, each in enumerate(clients)
                    ]
                after = await counter.read()
            finally:
                watch.cancel()
                for each in clients:
                    await each.disconnect()
    messages = sum(task.result() for task in tasks)
    packet = Publish(topic=TOPIC.format(0), payload=PAYLOAD, qos=1, packet_identifier=1)
    return {
        "messages": messages,
        "bytes": messages * len(encode_packet(packet, 4)),
        "bytes_counter": after - before,
    }


class _Counter:
    """The broker's own count of bytes, which it publishes every second if it has changed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._value = 0.0
        self._news = 0
        self._changed = asyncio.Event()

    async def watch(self) -> None:
        async for message in self._client.messages:
            self._value = float(message.text)
            self._news += 1
            self._changed.set()

    async def read(self) -> float:
        """A value as new as this call: the second that comes from now on, or the last if no more come."""
        wanted = self._news + 2
        try:
            async with asyncio.timeout(3.0 * SYS_SECONDS):
                while self._news < wanted:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass  # brokers are silent about what has not changed
        return self._value


async def _publish(client: Client, chosen: Plan, workload: str, number: int, seed: int, began: float) -> int:
    """One publisher, drawing what its twin on the virtual clock draws; how many of its messages were accepted."""
    habit = stream(workload, number, chosen.base, Random(f"{seed}/p{number}"), TRAINING)
    due = began
    accepted = 0
    deadline = began + chosen.seconds
    for interval in habit.intervals:
        due += interval
        if due >= deadline:
            break
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        try:
            await client.publish(
                TOPIC.format(number), PAYLOAD, qos=1, timeout=max(0.1, deadline - time.monotonic())
            )
        except (ClientError, TimeoutError):
            break  # still held at the end
        accepted += 1
        due = time.monotonic()
    return accepted
