"""The broker as a library object: `async with Broker(port=0) as broker: …`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

from tidegate.broker.core import Core
from tidegate.broker.flow_settings import FlowSettings
from tidegate.broker.handshake import Handshake
from tidegate.broker.hooks import Hooks
from tidegate.broker.listener import Listener, operator_listener
from tidegate.broker.message import Message
from tidegate.broker.publishing import bare_properties
from tidegate.broker.reasons import CloseReason
from tidegate.broker.recording import Level, Recording, Tap
from tidegate.broker.settings import Features, Limits
from tidegate.broker.store import Store, StoreSettings
from tidegate.broker.store.recovery import open_file, restore
from tidegate.broker.store.store import FILE_NAME
from tidegate.broker.sys_topics import SysTopics
from tidegate.flow.backoff import Prior
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.properties import Properties, Property
from tidegate.mqtt.topics import validate_topic_name
from tidegate.net.addresses import Endpoint
from tidegate.net.listen import Listening, listen

DRAIN_POLL = 0.02


class Broker:
    """One MQTT broker on the running event loop.

    With `data`, a folder, persistent sessions, queues and retained messages survive the process; without it they
    are in memory only. Without `listeners` it listens on `host` and `port` for plain MQTT; port 0 picks a free one
    (see `port`).
    `recording` names who records what the broker sees (`tidegate.lake.Recorder`).
    `random` is the only source of randomness; give a seeded one for repeatable runs. `attach` is called with the core
    before anything is restored or opened.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 1883,
        listeners: Sequence[Listener] | None = None,
        limits: Limits | None = None,
        features: Features | None = None,
        hooks: Hooks | None = None,
        random: Random | None = None,
        name: str = "tidegate",
        data: Path | str | None = None,
        store: StoreSettings | None = None,
        flow: FlowSettings | None = None,
        recording: Recording | None = None,
        attach: Callable[[Core], None] | None = None,
    ) -> None:
        self._recording = recording if recording is not None and recording.level is not Level.OFF else None
        self.name = name
        self._attach = attach
        self._data = None if data is None else Path(data)
        self._store_settings = store or StoreSettings()
        self._listeners = tuple(listeners) if listeners is not None else (Listener(host=host, port=port),)
        self._limits = limits or Limits()
        self._features = features or Features()
        self._hooks = hooks or Hooks()
        self._flow = flow or FlowSettings()
        self._random = random or Random()
        self._core: Core | None = None
        self._listening: list[Listening] = []
        self._operators: Listening | None = None
        self._sys: SysTopics | None = None

    @property
    def core(self) -> Core:
        """The state behind the broker; only while it runs, only from its loop."""
        if self._core is None:
            raise RuntimeError("the broker is not running")
        return self._core

    async def start(self) -> None:
        """Open every listener; if one fails, the others are closed again."""
        self._core = core = Core(
            asyncio.get_running_loop(),
            self._limits,
            self._features,
            self._hooks,
            self._random,
            self.name,
            self._flow,
        )
        if self._recording is not None:
            core.set_tap(Tap(core, self._recording))
        if self._attach is not None:
            self._attach(core)
        try:
            if self._data is not None:
                await self._open_store(core, self._data)
            for listener in self._listeners:
                self._listening.append(await _open(core, listener))
        except BaseException:
            await self.stop(timeout=0)
            raise
        if self._features.sys_interval:
            self._sys = SysTopics(core, self._features.sys_interval)
            core.on_load_changed = self._sys.load_changed

    async def open_for_operator(self, path: Path) -> None:
        """Open a unix socket for who runs this process: nobody asks for their rights, and no limit keeps them out.

        It is not among `endpoints`. Raises `ListenError`.
        """
        self._operators = await _open(self.core, operator_listener(path))

    async def _open_store(self, core: Core, folder: Path) -> None:
        lock, reader = await asyncio.to_thread(open_file, folder / FILE_NAME, self._store_settings.on_damage)
        store = Store(folder, self._store_settings)
        store.open(core.loop, reader, lock)
        core.store = store
        restore(core, store, reader)
        core.retained.watchers.append(store.retain)
        core.forget_departed()
        if core.cluster is not None:
            core.cluster.restored()

    async def stop(self, *, timeout: float = 5.0) -> None:
        """Stop listening, tell clients (0x8B), let them take what was sent, close what is left at the deadline."""
        core = self._core
        if core is None:
            return
        if self._operators is not None:
            self._operators.close()
        for listening in self._listening:
            listening.close()
        if self._sys is not None:
            self._sys.close()
        core.flush()
        core.stop()
        deadline = core.now() + timeout
        while core.closing and core.now() < deadline:
            await asyncio.sleep(DRAIN_POLL)
        if core.tap is not None:
            core.tap.close()
        core.close()
        if core.store is not None:
            await asyncio.to_thread(core.store.close, timeout)
        for listening in self._listening:
            await listening.wait_closed()
        self._listening.clear()
        if self._operators is not None:
            await self._operators.wait_closed()
            self._operators = None
        self._core = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where clients reach the broker, with free ports resolved."""
        return tuple(endpoint for listening in self._listening for endpoint in listening.endpoints)

    def endpoint_of(self, listener: int) -> Endpoint:
        """Where clients reach the listener of this number, the first of its addresses."""
        return self._listening[listener].endpoints[0]

    @property
    def port(self) -> int:
        """Port of the first listener."""
        return self._listening[0].port

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Publish from inside the process, as the broker itself; must be called on its loop."""
        validate_topic_name(topic)
        props = dict(properties or {})
        expiry = props.pop(Property.MESSAGE_EXPIRY_INTERVAL, None)
        expires = None if expiry is None else self.core.now() + expiry
        self.core.publish(Message(topic.encode(), payload, qos, retain, bare_properties(props), expires))

    def apply(self, limits: Limits, features: Features, flow: FlowSettings | None = None) -> None:
        """Change settings while running; connected clients keep what they were promised in CONNACK.

        Other back-off or priority settings begin anew: what was learnt about publishers is forgotten.
        """
        self._limits, self._features = limits, features
        self._flow = flow or self._flow
        if self._core is not None:
            self._core.apply(limits, features, flow)

    def set_priors(self, priors: Mapping[str, Prior]) -> None:
        """What is known of publishers before their first message, by client identifier; for those not yet known."""
        self.core.learn(priors, self.core.roster.speeds, self.core.policy_version)

    def learn(
        self,
        priors: Mapping[str, Prior],
        speeds: Mapping[tuple[str, str], float] | None = None,
        version: str = "",
    ) -> None:
        """Take a policy snapshot: `set_priors`, and seconds a message takes by (group or "", client) for members.

        `version` is what `$SYS`, metrics and the record say is in force.
        """
        self.core.learn(priors, speeds or {}, version)

    def rights_changed(self) -> None:
        """Forget cached rights: every later PUBLISH and delivery asks the authoriser again.

        So does every message that waits. QoS 0 that waits for a client that does not read is dropped.
        """
        self.core.rights_changed()

    def accounts_changed(self) -> None:
        """End sessions of users who have no account any more (`Hooks.has_account`), and what they left."""
        self.core.forget_departed()

    def close_clients(self, is_unwanted: Callable[[str | None], bool]) -> int:
        """Disconnect (0x87) clients whose user, None for anonymous ones, is unwanted; gives their number."""
        clients = (conn for conn in self.core.connections if not conn.listener.is_operator)
        unwanted = [conn for conn in clients if is_unwanted(conn.username)]
        for conn in unwanted:
            conn.close(CloseReason.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED)
        return len(unwanted)

    def statistics(self) -> dict[str, Any]:
        return self.core.statistics()


async def _open(core: Core, listener: Listener) -> Listening:
    return await listen(
        partial(Handshake, core, listener),
        host=listener.host,
        port=listener.port,
        unix_path=listener.unix_path,
        unix_mode=listener.unix_mode,
        ssl=listener.tls,
        websocket=listener.websocket,
        proxy=listener.proxy,
        door=core.door,
    )


__all__ = ["Broker"]
