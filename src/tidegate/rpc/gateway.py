"""The gateway emulator: many gateways with many devices, which take time, lose messages, say no, and move about.

Each gateway has its own connection and will, as real ones have. It obeys a request once, whatever its number of
deliveries: a repetition of one of the last keys it obeyed is answered from memory, and each device remembers the last
token it obeyed. With `state`, what devices remember is in a file, since devices outlive the gateway's process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import IO, Any

from tidegate.client import Client, Message, Will
from tidegate.errors import TidegateError
from tidegate.private import opener
from tidegate.rpc.bundler import Bundler
from tidegate.rpc.fencing import Fence, Recent, Verdict
from tidegate.rpc.labels import SHELF_LABEL
from tidegate.rpc.opened import Opened
from tidegate.rpc.options import Options
from tidegate.rpc.outcome import Reason
from tidegate.rpc.radio import Field
from tidegate.rpc.schema import DeviceType
from tidegate.rpc.telemetry import Hop, Observer, Step

log = logging.getLogger(__name__)

ONLINE, LOST = b'{"state":"online"}', b'{"state":"lost"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """`latency` in seconds, times a factor of up to 1 ± `jitter`; `loss` and `nack` are shares of requests;
    `remembered` is how many keys a gateway knows, `receive_maximum` how many messages it takes at a time; with
    `tells_key`, answers say which request they are for, so that a caller can tell whether it was its own."""

    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    nack: float = 0.0
    remembered: int = 10_000
    receive_maximum: int = 100
    tells_key: bool = False


class Gateway:
    """One of them. `is_stalled`: it takes messages and does nothing with them until it is told to go on."""

    def __init__(
        self,
        name: str,
        options: Options,
        kind: DeviceType,
        behaviour: Behaviour,
        *,
        fence: Fence,
        counters: Counter[str],
        random: Random,
        on_effect: Callable[[str, int, str], None],
        observer: Observer | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.behaviour = behaviour
        self.observer = observer
        self.is_stalled = False
        self._stalled: list[Message] = []
        self._fence = fence
        self._counters = counters
        self._random = random
        self._on_effect = on_effect
        self._known: Recent[dict[str, Any]] = Recent(behaviour.remembered)
        topics = kind.topics
        self._status = topics.status.format(gateway=name)
        self._response = topics.response.format(gateway=name)
        self._client: Client = options.client(
            f"gateway-{options.namespace}-{name}",
            manual_ack=True,
            clean_start=False,  # what was sent while it was away is meant for its devices, not for its process
            receive_maximum=behaviour.receive_maximum,
            will=Will(topic=self._status, payload=LOST, qos=1, retain=True),
        )
        self._earlier: asyncio.Task[None] | None = None
        self._out: dict[bytes, Bundler[tuple[dict[str, Any], Callable[[], None]]]] = {}

    async def open(self) -> None:
        await self._client.connect()
        self._earlier = asyncio.get_running_loop().create_task(self._take_earlier())
        topics = self.kind.topics
        await self._client.subscribe(
            topics.action.format(gateway=self.name), qos=1, callback=self._on_message
        )
        await self._client.publish(self._status, ONLINE, qos=1, retain=True)

    async def close(self) -> None:
        if self._earlier is not None:
            self._earlier.cancel()
            await asyncio.wait([self._earlier])
        for bundler in self._out.values():
            await bundler.close()
        try:
            if self._client.is_connected:
                await self._client.publish(self._status, LOST, qos=1, retain=True, timeout=1.0)
        except TidegateError:
            pass  # then its will says the same
        await self._client.disconnect()

    async def wait_closed(self) -> None:
        await self._client.wait_closed()

    async def _take_earlier(self) -> None:
        """What the session had for us: it comes before we have subscribed again, so no callback gets it."""
        async for message in self._client.messages:
            self._on_message(message)

    def go_on(self) -> None:
        """The end of a stall."""
        self.is_stalled = False
        waiting, self._stalled = self._stalled, []
        for message in waiting:
            self._on_message(message)

    def hear(self, advertisements: list[tuple[str, float]]) -> None:
        """Pass on what devices advertised; lost if the network is slow, as radio would be."""
        try:
            topic = self.kind.topics.beacon.format(gateway=self.name)
            self._client.publish_nowait(topic, json.dumps([(d, round(r, 1)) for d, r in advertisements]))
        except TidegateError:
            self._counters["beacons dropped"] += 1

    def _on_message(self, message: Message) -> None:
        if self.is_stalled:
            self._stalled.append(message)  # bounded by the Receive Maximum
            return
        try:
            content = json.loads(message.payload)
            rows = content if isinstance(content, list) else [content]
            names = self.kind.names
            requests = [(str(row[names.device]), row) for row in rows]
        except (ValueError, TypeError, KeyError, RecursionError):
            self._counters["malformed"] += 1
            message.ack()
            return
        if message.retain:
            self._counters["retained"] += 1
        left = len(requests)

        def answered() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                message.ack()  # after the answers: a gateway that dies before gets it again

        via = message.correlation_data or b""
        for device, row in requests:
            self._take(device, row, via, answered)
        if not requests:
            message.ack()

    def _take(self, device: str, row: dict[str, Any], via: bytes, answered: Callable[[], None]) -> None:
        self._counters["taken"] += 1
        behaviour = self.behaviour
        if behaviour.loss and self._random.random() < behaviour.loss:
            self._counters["lost"] += 1
            answered()
            return
        if not behaviour.latency:
            self._do(device, row, via, answered)
            return
        delay = behaviour.latency * (1.0 + behaviour.jitter * self._random.uniform(-1.0, 1.0))
        asyncio.get_running_loop().call_later(delay, self._do, device, row, via, answered)

    def _do(self, device: str, row: dict[str, Any], via: bytes, answered: Callable[[], None]) -> None:
        names = self.kind.names
        key, token = str(row.get(names.key, "")), row.get(names.token, 0)
        known = self._known.get(key) if key else None
        if known is not None:
            self._counters["repeated"] += 1
            answer = dict(known)
        else:
            answer = self._obey(device, key, token if isinstance(token, int) else 0, row)
        if names.id in row and self.kind.can_echo:
            answer[names.id] = row[names.id]
        if self.observer is not None:
            self.observer.on_hop(Hop(time.time(), Step.GATEWAY, key, device, self.name, self.name))
        bundler = self._out.get(via)
        if bundler is None:
            if len(self._out) > 1000:
                self._out = {name: each for name, each in self._out.items() if not each.is_idle}
            bundler = self._out[via] = Bundler(partial(self._answer, via), limit=self.kind.bundle, at_once=2)
        bundler.add((answer, answered))

    def _obey(self, device: str, key: str, token: int, row: dict[str, Any]) -> dict[str, Any]:
        names = self.kind.names
        deadline = row.get(names.deadline)
        reason = ""
        if isinstance(deadline, int | float) and deadline < time.time():
            reason = "expired"
        elif self.behaviour.nack and self._random.random() < self.behaviour.nack:
            reason = Reason.DEVICE
        elif token:
            verdict = self._fence.judge(device, token, key)
            if verdict is Verdict.APPLY:
                self._effect(device, token, key)
            elif verdict is Verdict.SUPERSEDED:
                reason = Reason.SUPERSEDED
            self._counters[verdict] += 1
        else:
            self._effect(device, token, key)
        answer = {names.device: device, names.ack: not reason, names.reason: reason}
        if not reason:
            del answer[names.reason]
        if self.behaviour.tells_key:
            answer[names.data] = {"key": key}
        answer.pop("", None)
        if key and reason in ("", Reason.SUPERSEDED):
            # What was not done may be asked for again, and be done then.
            self._known.put(key, answer)
        return answer

    def _effect(self, device: str, token: int, key: str) -> None:
        self._counters["effects"] += 1
        self._on_effect(device, token, key)

    async def _answer(self, via: bytes, rows: list[tuple[dict[str, Any], Callable[[], None]]]) -> None:
        answers = [answer for answer, _ in rows]
        body = json.dumps(answers if self.kind.bundle > 1 else answers[0], separators=(",", ":"))
        try:
            await self._client.publish(self._response, body, qos=1, correlation_data=via, timeout=None)
        except TidegateError as error:
            self._counters["answers lost"] += len(rows)
            log.warning("answers could not be published", extra={"gateway": self.name, "error": str(error)})
            return
        for _, answered in rows:
            answered()


class Emulator(Opened):
    """All gateways of one process. `field` makes devices advertise, by the device type's period."""

    def __init__(
        self,
        options: Options,
        gateways: Iterable[str],
        kind: DeviceType = SHELF_LABEL,
        behaviour: Behaviour | None = None,
        *,
        field: Field | None = None,
        state: Path | None = None,
        seed: int = 0,
        observer: Observer | None = None,
        on_effect: Callable[[str, int, str], None] | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        """How often each key took effect: never more than once."""
        self.field = field
        self._kind = kind
        self._state_path = state
        self._state: IO[str] | None = None
        self._told = on_effect
        fence = Fence()
        self._fence = fence
        self.gateways = {
            name: Gateway(
                name,
                options,
                kind,
                behaviour or Behaviour(),
                fence=fence,
                counters=self.counters,
                random=Random(f"{seed}/{name}"),
                on_effect=self._on_effect,
                observer=observer,
            )
            for name in gateways
        }
        self._advertising: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._state_path is not None:
            self._state = self._open_state(self._state_path)
        for gateway in self.gateways.values():
            await gateway.open()
        if self.field is not None:
            self._advertising = asyncio.get_running_loop().create_task(self._advertise(self.field))

    async def close(self) -> None:
        if self._advertising is not None:
            self._advertising.cancel()
            await asyncio.wait([self._advertising])
        for gateway in self.gateways.values():
            await gateway.close()
        if self._state is not None:
            self._state.close()

    async def wait_closed(self) -> None:
        """Until the first of them ends, which is a fault unless somebody closed it."""
        waits = [asyncio.ensure_future(gateway.wait_closed()) for gateway in self.gateways.values()]
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()
        for wait in done:
            wait.result()

    def statistics(self) -> dict[str, int]:
        return dict(self.counters)

    def _open_state(self, path: Path) -> IO[str]:
        """What devices remember; the last line may be half a one if the process was killed."""
        if path.exists():
            for line in path.read_text().splitlines():
                device, _, rest = line.partition(" ")
                token, _, key = rest.partition(" ")
                if token.isdecimal() and key.endswith("."):
                    self._fence.restore(device, int(token), key[:-1])
        return open(path, "a", buffering=1, opener=opener)

    def _on_effect(self, device: str, token: int, key: str) -> None:
        if self._state is not None:
            self._state.write(f"{device} {token} {key}.\n")
        else:
            self.effects[key] += 1
        if self._told is not None:
            self._told(device, token, key)

    async def _advertise(self, field: Field) -> None:
        """Each device once a period, spread over it."""
        period, slices = self._kind.advertises_every, 20
        devices = list(field.devices)
        while True:
            for number in range(slices):
                heard: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
                for device in devices[number::slices]:
                    for gateway, rssi in field.advertise(device):
                        heard[gateway].append((device, rssi))
                for name, advertisements in heard.items():
                    if name in self.gateways:
                        self.gateways[name].hear(advertisements)
                await asyncio.sleep(period / slices)
                field.move(period / slices)
