"""Members that are plain paho-mqtt clients: QoS 1, acknowledged after processing, no reports. See `clients`."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tidegate.lab.shared.clients import QUIET, Lags, Plan, Work
from tidegate.lab.shared.variants import VARIANTS, Slot

PUBACK = 4  # bytes


class PahoMember:
    """One client with its two threads: paho's own for the network, and one that works."""

    def __init__(self, plan: Plan, slot: Slot, start: float) -> None:
        self.work = Work(plan.worker, start + slot.begins)
        self.lags = Lags()
        self.is_late = False
        self._port = plan.port
        self._topic_filter = f"$share/{VARIANTS[slot.variant].policy}/{slot.topic}"
        self._queue: SimpleQueue[MQTTMessage] = SimpleQueue()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id=f"{slot.number}-member-{plan.member}", manual_ack=True
        )
        self._client.on_message = lambda _client, _data, message: self._queue.put(message)
        self._client.on_connect = lambda client, *_: client.subscribe(self._topic_filter, qos=1)
        self._client.on_subscribe = self._on_subscribed
        self._has_joined = plan.worker.joins > 0.0

    def _on_subscribed(self, *_: Any) -> None:
        self.is_late = not self._has_joined and time.monotonic() > self.work.begins

    def start(self) -> None:
        self._client.connect("127.0.0.1", self._port, keepalive=60)
        self._client.loop_start()
        self._thread.start()

    def leave(self) -> None:
        self._client.unsubscribe(self._topic_filter)

    @property
    def is_quiet(self) -> bool:
        return self._queue.empty() and time.monotonic() > self.work.until + QUIET

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.disconnect()
        self._client.loop_stop()
        while not self._queue.empty():
            self.work.leave(self._queue.get().payload)

    def _work(self) -> None:
        while not self._is_over.is_set():
            was_waiting = not self._queue.empty()
            try:
                message = self._queue.get(timeout=0.1)
            except Empty:
                continue
            due = self.work.take(message.payload, time.monotonic(), was_waiting=was_waiting)
            time.sleep(max(0.0, due - time.monotonic()))
            self.lags.note(due, time.monotonic())
            self._client.ack(message.mid, message.qos)


def members(plan: Plan, start: float) -> dict[str, Any]:
    """The members of one number in all groups."""
    found = {slot.number: PahoMember(plan, slot, start) for slot in plan.slots}
    agenda = [(plan.connects_at(slot, start), found[slot.number].start) for slot in plan.slots]
    end = start + plan.seconds
    if plan.worker.leaves < plan.seconds:
        agenda += [(each.work.begins + plan.worker.leaves, each.leave) for each in found.values()]
    for due, action in sorted(agenda, key=lambda entry: entry[0]):
        time.sleep(max(0.0, due - time.monotonic()))
        action()
    time.sleep(max(0.0, end + max(slot.begins for slot in plan.slots) - time.monotonic()))
    while time.monotonic() < end + plan.drain and not all(each.is_quiet for each in found.values()):
        time.sleep(0.05)
    for each in found.values():
        each.stop()
    lags = Lags([late for each in found.values() for late in each.lags.late])
    return {
        "slots": {
            number: {**each.work.record(0, PUBACK * len(each.work.ids)), "is_late": each.is_late}
            for number, each in found.items()
        },
        "lags": lags.summary(),
    }
