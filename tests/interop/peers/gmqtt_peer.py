"""gmqtt: asyncio with a codec of its own; TCP and TLS only."""

import asyncio
import ssl
from typing import Any

import gmqtt  # type: ignore[import-untyped]

from tests.interop.peers.base import DEADLINE, Inbox, Message, Options, Properties
from tests.interop.peers.loop import LoopThread

# Our field: the library's name for the property.
NAMES = {
    "response_topic": "response_topic",
    "correlation_data": "correlation_data",
    "content_type": "content_type",
    "payload_format_indicator": "payload_format_id",
    "message_expiry_interval": "message_expiry_interval",
    "topic_alias": "topic_alias",
}


def from_gmqtt(found: dict[str, Any]) -> Properties:
    """The library gives every property as a list, as if it could come several times."""
    values = {ours: found[theirs][0] for ours, theirs in NAMES.items() if theirs in found}
    if isinstance(values.get("correlation_data"), str):
        values["correlation_data"] = values["correlation_data"].encode()
    return Properties(user=tuple(map(tuple, found.get("user_property", ()))), **values)


def to_gmqtt(properties: Properties | None) -> dict[str, Any]:
    if properties is None:
        return {}
    given = {theirs: getattr(properties, ours) for ours, theirs in NAMES.items()}
    given = {name: value for name, value in given.items() if value is not None}
    if properties.user:
        given["user_property"] = list(properties.user)
    return given


class GmqttPeer:
    """Publishing is fire and forget in this library; the wait is for its store to be empty again."""

    def __init__(self, options: Options) -> None:
        self.inbox = Inbox()
        self._options = options
        self._thread = LoopThread()
        self._session_present = False
        self._answers: dict[int, asyncio.Future[tuple[int, ...]]] = {}
        self._client: gmqtt.Client | None = None

    async def _connect(self) -> None:
        options, address = self._options, self._options.address
        will = None
        if options.will is not None:
            will = gmqtt.Message(
                options.will.topic, options.will.payload, options.will.qos, options.will.retain
            )
        connect: dict[str, Any] = {}
        if options.version == 5:
            connect["session_expiry_interval"] = options.session_expiry
            if options.topic_alias_maximum:
                connect["topic_alias_maximum"] = options.topic_alias_maximum
        client = gmqtt.Client(
            options.client_id, clean_session=options.clean_start, will_message=will, **connect
        )
        client.set_config({"reconnect_retries": 0})
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_subscribe = lambda client, identifier, granted, properties: self._answer(
            identifier, granted
        )
        client.on_unsubscribe = lambda client, identifier, granted: self._answer(identifier, granted)
        self._client = client
        await client.connect(
            address.host,
            address.port,
            ssl=address.tls_context() if address.is_tls else False,
            version=options.version,
        )

    def _on_connect(self, client: Any, session_present: int, reason: int, properties: Any) -> None:
        self._session_present = bool(session_present)

    def _on_message(self, client: Any, topic: str, payload: bytes, qos: int, properties: Any) -> int:
        self.inbox.put(
            Message(
                topic=topic,
                payload=bytes(payload),
                qos=qos,
                retain=bool(properties["retain"]),
                properties=from_gmqtt(properties),
            )
        )
        return 0

    def _answer(self, identifier: int, granted: tuple[int, ...]) -> None:
        self._wanted(identifier).set_result(granted)

    def _wanted(self, identifier: int) -> asyncio.Future[tuple[int, ...]]:
        return self._answers.setdefault(identifier, self._thread.loop.create_future())

    def connect(self) -> bool:
        self._thread.run(self._connect())
        return self._session_present

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        async def run() -> int:
            assert self._client is not None
            return (await self._wanted(self._client.subscribe(topic_filter, qos)))[0]

        return self._thread.run(run())

    def unsubscribe(self, topic_filter: str) -> None:
        async def run() -> None:
            assert self._client is not None
            await self._wanted(self._client.unsubscribe(topic_filter))

        self._thread.run(run())

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        async def run() -> None:
            assert self._client is not None
            self._client.publish(topic, payload, qos=qos, retain=retain, **to_gmqtt(properties))
            await self._client._persistent_storage.wait_empty()

        self._thread.run(run())

    def disconnect(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            self._thread.run(client.disconnect())
        except ssl.SSLError as error:
            # The library hands a QoS 2 message over before the handshake is complete; if we leave then, the
            # broker's PUBREL crosses our close_notify, and asyncio counts that as an error of the closing end.
            if error.reason != "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":
                raise

    def drop(self) -> None:
        async def run() -> None:
            client, self._client = self._client, None
            assert client is not None
            client.stop_reconnect()
            client._connection._transport.abort()
            async with asyncio.timeout(DEADLINE):
                await client._connection_lost.wait()

        self._thread.run(run())

    def close(self) -> None:
        if not self._thread.is_closed:
            self.disconnect()
            self._thread.close()
