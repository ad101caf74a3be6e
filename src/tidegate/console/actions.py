"""What an operator may do from the page, by name: each checks what it is given and says in one line what it did."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tidegate.client import Client, PublishRefused
from tidegate.client.errors import ClientError
from tidegate.console import policies
from tidegate.console.errors import ActionRefused, RoomMissing
from tidegate.console.rooms import find_room, how_to_install
from tidegate.console.settings import ConsoleSettings
from tidegate.console.watch import NodeWatch
from tidegate.errors import TidegateError
from tidegate.mqtt.codes import ReasonCode

log = logging.getLogger("tidegate.console")

PATIENCE: Final = 10.0  # seconds that the node may take for an order
BANDS: Final = ("urgent", "normal", "bulk")


@dataclass(frozen=True, slots=True)
class Console:
    """What actions work on."""

    settings: ConsoleSettings
    watch: NodeWatch

    @property
    def client(self) -> Client:
        client = self.watch.client
        if client is None or not client.is_connected:
            raise ActionRefused("The console is not connected to its node.", "wait until it is back")
        return client


async def act(console: Console, user: str, name: str, order: dict[str, Any]) -> str:
    """Do it; raises ActionRefused or RoomMissing. Done and refused, it is in the log with who asked."""
    action = ACTIONS.get(name)
    if action is None:
        raise ActionRefused("There is no such action.", ", ".join(ACTIONS))
    try:
        done = await action(console, order)
    except TidegateError as error:
        log.warning("action refused", extra={"user": user, "action": name, "why": str(error)})
        raise
    log.warning("action", extra={"user": user, "action": name, "done": done})
    return done


async def release(console: Console, order: dict[str, Any]) -> str:
    client, seconds = _text(order, "client"), order.get("seconds", 60)
    await _order(console, "release", {"client": client, "seconds": seconds})
    return f"{client} is released, and not held again for {seconds} s."


async def pin(console: Console, order: dict[str, Any]) -> str:
    client, band = _text(order, "client"), order.get("band") or None
    if band is not None and band not in BANDS:
        raise ActionRefused("There is no such class.", ", ".join(BANDS))
    await _order(console, "pin", {"client": client, "band": band})
    return f"{client} is served as {band}." if band else f"{client} is served by its rate again."


async def plan(console: Console, order: dict[str, Any]) -> str:
    return await _cluster(console, "plan", _text(order, "node"), "The plan for {} was asked for.")


async def drain(console: Console, order: dict[str, Any]) -> str:
    return await _cluster(console, "drain", _text(order, "node"), "{} is being drained.")


async def resume(console: Console, order: dict[str, Any]) -> str:
    return await _cluster(console, "resume", _text(order, "node"), "{} takes clients again.")


async def apply_policy(console: Console, order: dict[str, Any]) -> str:
    version = await asyncio.to_thread(policies.apply, console.settings.policy, _text(order, "version"))
    return f"{version} is current; nodes that follow the folder take it within seconds."


async def roll_back_policy(console: Console, _order: dict[str, Any]) -> str:
    version = await asyncio.to_thread(policies.roll_back, console.settings.policy)
    return f"{version} is current again."


async def replay(console: Console, order: dict[str, Any]) -> str:
    """A dead task is put on the queue again."""
    task_id = _text(order, "task")
    async with _dispatcher(console) as dispatcher:
        if not await dispatcher.replay(task_id):
            raise ActionRefused(f"There is no dead task {task_id}.", "somebody else may have taken it")
    return f"{task_id} is on the queue again."


async def drop(console: Console, order: dict[str, Any]) -> str:
    task_id = _text(order, "task")
    async with _dispatcher(console) as dispatcher:
        if not await dispatcher.drop(task_id):
            raise ActionRefused(f"There is no dead task {task_id}.", "somebody else may have taken it")
    return f"{task_id} is gone."


ACTIONS: Final[dict[str, Callable[[Console, dict[str, Any]], Awaitable[str]]]] = {
    "release": release,
    "pin": pin,
    "plan": plan,
    "drain": drain,
    "resume": resume,
    "policy-apply": apply_policy,
    "policy-rollback": roll_back_policy,
    "rpc-replay": replay,
    "rpc-drop": drop,
}


def _text(order: dict[str, Any], name: str) -> str:
    value = order.get(name)
    if not isinstance(value, str) or not value or len(value) > 65_535:
        raise ActionRefused(f"{name} is missing.", "")
    return value


async def _order(console: Console, name: str, order: dict[str, Any]) -> None:
    await _publish(console, f"$tide/control/{name}", json.dumps(order))


async def _cluster(console: Console, what: str, node: str, done: str) -> str:
    if node not in console.watch.cluster.nodes:
        raise ActionRefused(f"There is no node {node} in the cluster.", "tidegate cluster status lists them")
    await _publish(console, f"$tide/cluster/{what}", node)
    return done.format(node)


async def _publish(console: Console, topic: str, payload: str) -> None:
    try:
        answer = await console.client.publish(topic, payload, qos=1, timeout=PATIENCE)
    except PublishRefused as error:
        if error.reason_code == ReasonCode.NOT_AUTHORIZED:
            raise ActionRefused(
                "The node does not take orders from the console's account.",
                f"give it the right, topic write {topic.rpartition('/')[0]}/#; or let it come by the operator's socket",
            ) from None
        raise ActionRefused(f"The node refused: {error.reason_string or error}.", "") from None
    except ClientError as error:
        raise ActionRefused(f"The node did not answer: {error}.", error.hint) from None
    if answer.reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
        raise ActionRefused("This node does not know such orders.", "it may be older than the console")


def _dispatcher(console: Console) -> Any:
    room = find_room("rpc")
    if room is None:
        raise RoomMissing("Support for calls is not installed.", how_to_install("rpc"))
    client = console.client
    options = find_room("rpc.options")
    return room.Dispatcher(
        options.Options(url=str(client.endpoint), namespace=console.settings.namespace, mqtt=client.options)
    )
