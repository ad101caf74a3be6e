"""aiomqtt: asyncio on top of paho-mqtt's packets."""

import asyncio
from typing import Any

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY

from tests.interop.peers.base import Inbox, Message, Options, Properties
from tests.interop.peers.loop import LoopThread
from tests.interop.peers.paho_peer import connect_properties, drop_socket, from_paho, to_paho


class AiomqttPeer:
    """The context manager of the library, entered by `connect` and left by `disconnect`."""

    def __init__(self, options: Options) -> None:
        self.inbox = Inbox()
        self._options = options
        self._thread = LoopThread()
        self._client: aiomqtt.Client | None = None
        self._session_present = False
        self._reading: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        options, address = self._options, self._options.address
        is_v5 = options.version == 5
        will = options.will
        client = aiomqtt.Client(
            address.path or address.host,
            address.port or 1883,
            identifier=options.client_id,
            protocol=aiomqtt.ProtocolVersion(options.version),
            transport="websockets" if address.is_websocket else "unix" if address.path else "tcp",
            tls_context=address.tls_context() if address.is_tls else None,
            clean_session=None if is_v5 else options.clean_start,
            clean_start=options.clean_start if is_v5 else MQTT_CLEAN_START_FIRST_ONLY,
            properties=connect_properties(options) if is_v5 else None,
            will=None if will is None else aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
        )
        inner: Any = client._client.on_connect

        # The library keeps "session present" to itself; its own handler still runs.
        def on_connect(paho: Any, data: Any, flags: Any, reason: Any, properties: Any = None) -> None:
            self._session_present = flags.session_present
            inner(paho, data, flags, reason, properties)

        client._client.on_connect = on_connect
        await client.__aenter__()
        self._client = client
        self._reading = asyncio.create_task(self._read(client))

    async def _read(self, client: aiomqtt.Client) -> None:
        try:
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                self.inbox.put(
                    Message(
                        topic=str(message.topic),
                        payload=message.payload,
                        qos=message.qos,
                        retain=message.retain,
                        properties=from_paho(message.properties),
                    )
                )
        except aiomqtt.MqttError:
            pass  # the end of the connection is how this iteration ends

    def connect(self) -> bool:
        self._thread.run(self._connect())
        return self._session_present

    @property
    def _connected(self) -> aiomqtt.Client:
        assert self._client is not None
        return self._client

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        granted = self._thread.run(self._connected.subscribe(topic_filter, qos))[0]
        return granted if isinstance(granted, int) else int(granted.value)

    def unsubscribe(self, topic_filter: str) -> None:
        self._thread.run(self._connected.unsubscribe(topic_filter))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self._thread.run(self._connected.publish(topic, payload, qos, retain, to_paho(properties)))

    async def _leave(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        await client.__aexit__(None, None, None)
        assert self._reading is not None
        await self._reading

    def disconnect(self) -> None:
        self._thread.run(self._leave())

    def drop(self) -> None:
        drop_socket(self._connected._client.socket())
        assert self._reading is not None
        reading, self._client = self._reading, None

        async def wait_noticed() -> None:
            await reading

        self._thread.run(wait_noticed())

    def close(self) -> None:
        if not self._thread.is_closed:
            self._thread.run(self._leave())
            self._thread.close()
