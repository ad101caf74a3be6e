"""A running node, assembled from its settings: the one place that joins the rooms."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.accounts import Accounts, load
from tidegate.broker import Broker, Limits, Listener
from tidegate.broker.metrics import serve_metrics
from tidegate.cluster.membership import ClusterNode
from tidegate.cluster.settings import Role
from tidegate.cluster.wire import LinkAuthenticator
from tidegate.errors import TidegateError
from tidegate.lake.errors import require_pyarrow
from tidegate.net.descriptors import raise_limit
from tidegate.net.errors import AddressInUse, ListenError
from tidegate.net.operators import place_for
from tidegate.net.proxy import ProxyOptions
from tidegate.net.tls import server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.settings import AUTO, NO_SOCKET, ListenerSettings, ListenerType, Settings

if TYPE_CHECKING:
    from tidegate.lake.recorder import Recorder
    from tidegate.policy.snapshot import Snapshot
    from tidegate.policy.watch import PolicyWatcher

log = logging.getLogger("tidegate.node")

WILDCARDS = ("0.0.0.0", "::")
FALLBACK_PORTS = 50  # how many ports after the usual one are tried
# Young objects are messages and die soon; to walk every session for cycles among them is wasted. The middle run is the
# longest one: over 100 000 objects.
GC_THRESHOLDS = (20_000, 5, 10_000)


def make_listener(settings: ListenerSettings, limits: Limits) -> Listener:
    """The broker's listener for one `[[listeners]]` entry; raises for unusable certificates."""
    tls = None
    if settings.is_tls:
        assert settings.certfile is not None and settings.keyfile is not None  # the loader checked
        tls = server_context(
            settings.certfile,
            settings.keyfile,
            client_ca=settings.client_ca,
            require_client_certificate=settings.require_client_certificate,
        )
    websocket = None
    if settings.is_websocket:
        websocket = WebSocketOptions(
            paths=tuple(dict.fromkeys((settings.path, "/"))),
            origins=settings.origins,
            max_frame_bytes=limits.max_packet_size + 65_536,
            max_first_bytes=limits.max_connect_size + 1_024,
        )
    is_unix = settings.type is ListenerType.UNIX
    return Listener(
        name=settings.address,
        host=None if settings.host in ("*", "") else settings.host,
        port=settings.port,
        unix_path=Path(settings.path) if is_unix else None,
        tls=tls,
        websocket=websocket,
        proxy=ProxyOptions(trusted=settings.proxy_from) if settings.proxy_protocol else None,
        allow_anonymous=settings.accepts_anonymous,
        max_connections=settings.max_connections,
    )


class Node:
    """One broker with what surrounds it. `async with Node(settings): …`"""

    def __init__(self, settings: Settings, *, port_fallback: bool = False) -> None:
        self.settings = settings
        self._port_fallback = port_fallback
        self._stop_metrics: Callable[[], None] | None = None
        self.metrics_port = 0
        self.operator_socket: Path | None = None  # where it is, once the node runs
        self._reloading = asyncio.Lock()
        self.accounts = Accounts(settings.accounts)
        self.recorder = _recorder(settings)
        self._policy = _policy_watcher(settings, self)
        self.broker = self._make_broker(settings)

    def _make_broker(self, settings: Settings) -> Broker:
        self._listeners = [make_listener(each, settings.limits) for each in settings.listeners]
        cluster = settings.cluster
        self.cluster: ClusterNode | None = None
        if cluster.role is not Role.SINGLE:
            self.cluster = ClusterNode(settings.name, cluster, self._address)
        if self.cluster is not None and cluster.role is Role.HEAD:
            self._listeners.append(
                Listener(
                    name="link",
                    host=None if cluster.link_host in ("*", "") else cluster.link_host,
                    port=cluster.link_port,
                    allow_anonymous=False,
                    is_link=True,
                    authenticator=LinkAuthenticator(cluster.secret, self.cluster.links.objection),
                )
            )
        return Broker(
            listeners=self._listeners,
            limits=settings.limits,
            features=settings.features,
            flow=settings.flow,
            name=settings.name,
            data=settings.data,
            store=settings.store,
            hooks=self.accounts.hooks(),
            recording=None if self.recorder is None else self.recorder.recording,
            attach=None if self.cluster is None else self.cluster.attach,
        )

    def _address(self) -> str:
        """Where clients reach this node: as set, or the first listener.

        One that listens on every address is reached by that which the node's links have.
        """
        endpoint = self.broker.endpoints[0]
        if endpoint.host in WILDCARDS and self.cluster is not None:
            endpoint = replace(endpoint, host=self.cluster.links.own_host or endpoint.host)
        return self.settings.cluster.address or str(endpoint)

    @property
    def link_port(self) -> int:
        """Of a head: where other nodes connect."""
        return self.broker.endpoints[-1].port

    def statistics(self) -> dict[str, Any]:
        """Of the broker and what surrounds it."""
        found = self.broker.statistics()
        for each in (self.recorder, self._policy):
            if each is not None:
                found |= each.statistics()
        if self.cluster is not None:
            found["cluster"] = self.cluster.statistics()
        return found

    async def start(self) -> None:
        """Listen; with `port_fallback`, the first listener moves to the next free port if its own is taken."""
        wanted = self._listeners[0].port
        for port in range(wanted, wanted + FALLBACK_PORTS):
            self._listeners[0].port = port
            try:
                await self.broker.start()
                break
            except AddressInUse as error:
                is_first = error.address.endswith(f":{port}")
                if not self._port_fallback or not is_first or port == wanted + FALLBACK_PORTS - 1:
                    raise
        if self._listeners[0].port != wanted:
            log.warning(
                "port taken, using the next free one", extra={"wanted": wanted, "port": self.broker.port}
            )
        await self._open_for_operator()
        for listener in self._listeners:
            if not listener.is_link and not listener.allow_anonymous and self.accounts.hooks().authenticator is None:
                log.warning(
                    "nobody can connect here: there are no accounts, and anonymous clients are not allowed",
                    extra={
                        "listener": listener.name,
                        "hint": "set accounts.password_file or allow_anonymous",
                    },
                )
        if self._policy is not None:
            await self._policy.look()  # before the first client is judged
            self.broker.core.spawn(self._policy.run())
        if self.cluster is not None:
            self.cluster.start()
        metrics = self.settings.metrics
        if metrics.port:
            try:
                self.metrics_port, self._stop_metrics = serve_metrics(
                    metrics.host, metrics.port, self.settings.name, self.statistics
                )
            except TidegateError:
                await self.broker.stop(timeout=0)
                await self._close_recorder()
                raise

    async def _open_for_operator(self) -> None:
        wanted = self.settings.operator_socket
        if wanted == NO_SOCKET:
            return
        try:
            path = place_for(self.broker.endpoints[0]) if wanted == AUTO else Path(wanted)
            await self.broker.open_for_operator(path)
        except (OSError, ListenError) as error:
            if wanted != AUTO:
                await self.broker.stop(timeout=0)
                await self._close_recorder()
                raise
            log.warning("no socket for the operator", extra={"error": str(error), "hint": "set operator_socket"})
            return
        self.operator_socket = path

    async def stop(self) -> None:
        if self._stop_metrics is not None:
            self._stop_metrics()
        if self.cluster is not None:
            await self.cluster.stop()
        await self.broker.stop(timeout=self.settings.shutdown_timeout)
        await self._close_recorder()
        self.accounts.close()

    async def _close_recorder(self) -> None:
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close, max(1.0, self.settings.shutdown_timeout))

    def take_policy(self, snapshot: Snapshot) -> None:
        """A policy snapshot is in force from now on."""
        self.broker.learn(snapshot.priors, snapshot.speeds, snapshot.version)
        if self.cluster is not None:
            self.cluster.learn(snapshot.correlations)

    def record_policy(self, before: str, version: str, error: str) -> None:
        """A policy snapshot was taken, or refused."""
        tap = self.broker.core.tap
        if tap is not None:
            tap.action("policy", src=before, dst=version, reason=error, is_done=not error)

    async def __aenter__(self) -> Node:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def reload(self, settings: Settings) -> None:
        """Take new limits, features, certificates, accounts and rights, or raise with the old ones in force.

        Clients stay connected, except those whose account is gone or has another password. What needs a restart is
        named in the log and left alone.
        """
        async with self._reloading:
            loaded = await asyncio.to_thread(load, settings.accounts)
            self._reload_listeners(settings)
            self.accounts.apply(loaded)
            self.broker.apply(settings.limits, settings.features, settings.flow)
            self.broker.rights_changed()
            self.broker.close_clients(lambda user: not self.accounts.still_allowed(user))
            self.broker.accounts_changed()
            if (settings.lake, settings.policy) != (self.settings.lake, self.settings.policy):
                log.warning("lake or policy changed: restart to apply")
            if self.broker.core.tap is not None:
                self.broker.core.tap.action("settings")
            self.settings = replace(settings, listeners=self.settings.listeners)
            log.info("settings reloaded")

    def _reload_listeners(self, settings: Settings) -> None:
        for new in settings.listeners:
            make_listener(new, settings.limits)  # raises before anything is changed
        for old, new, listener in zip(
            self.settings.listeners, settings.listeners, self._listeners, strict=False
        ):
            if listener.tls is not None and new.certfile is not None and new.keyfile is not None:
                listener.tls.load_cert_chain(new.certfile, new.keyfile)
            if replace(old, certfile=None, keyfile=None) != replace(new, certfile=None, keyfile=None):
                log.warning("listener changed: restart to apply", extra={"listener": old.address})
        if len(self.settings.listeners) != len(settings.listeners):
            log.warning("listeners added or removed: restart to apply")


def _recorder(settings: Settings) -> Recorder | None:
    if not settings.lake.is_on:
        return None
    require_pyarrow()
    from tidegate.lake.recorder import Recorder

    return Recorder(settings.lake, settings.name)


def _policy_watcher(settings: Settings, node: Node) -> PolicyWatcher | None:
    if not settings.policy.path:
        return None
    require_pyarrow()
    from tidegate.policy.watch import PolicyWatcher

    policy = settings.policy
    if settings.cluster.role is not Role.HEAD:
        policy = replace(policy, correlations=False)  # only a head places subscribers
    return PolicyWatcher(policy, node.take_policy, node.record_policy)


async def serve(
    settings: Settings,
    *,
    port_fallback: bool = False,
    reload: Callable[[], Settings] | None = None,
    beside: Callable[[Node], AbstractAsyncContextManager[None]] | None = None,
) -> int:
    """Run a node until SIGTERM or SIGINT; SIGHUP reads the settings again. Gives the exit code.

    `beside` is entered when the node accepts connections, and left before it stops.
    """
    raise_limit()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Node(settings, port_fallback=port_fallback) as node:
        if reload is not None:
            loop.add_signal_handler(signal.SIGHUP, lambda: node.broker.core.spawn(_reload(node, reload)))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print(_ready_line(node), flush=True)
        async with nullcontext() if beside is None else beside(node):
            await stop.wait()
            log.info("stopping")
    return 0


async def _reload(node: Node, read: Callable[[], Settings]) -> None:
    try:
        await node.reload(read())
    except TidegateError as error:
        log.error("settings not reloaded, the old ones stay", extra={"error": str(error)})


def _ready_line(node: Node) -> str:
    addresses = ", ".join(str(endpoint) for endpoint in node.broker.endpoints)
    data = node.settings.data
    kept = (
        "sessions in memory only" if data is None else f"sessions in {data}, {node.settings.store.durability}"
    )
    line = f"tidegate ready on {addresses} ({kept})"
    if node.recorder is not None:
        line += f", recording to {node.recorder.target} ({node.settings.lake.level})"
    if node.metrics_port:
        line += f", metrics on http://{node.settings.metrics.host}:{node.metrics_port}/metrics"
    return line
