"""From what the application publishes to the wire, or to the outbox: makes packets, and waits where it must."""

from __future__ import annotations

import asyncio

from tidegate.client.connection import Connection, State
from tidegate.client.fields import MessageFields, Payload, message_properties, payload_bytes
from tidegate.client.publishing import SENT, Acknowledgement, Outgoing
from tidegate.mqtt.packets import Publish


class Sender:
    """The slow side of `Client.publish`: what has to be waited for before a message can be sent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def packet(self, topic: str, payload: Payload, qos: int, retain: bool, fields: MessageFields) -> Publish:
        """Raises what speaks against sending this: no connection, a topic, QoS or payload that cannot be."""
        connection = self._connection
        if connection.state is not State.OPEN:
            connection.check()
        connection.session.wire.check_topic(topic)
        if qos or retain:
            connection.session.limits.check_publish(qos, retain=retain)
        return Publish(
            topic=topic,
            payload=payload_bytes(payload),
            qos=qos,
            retain=retain,
            properties=message_properties(fields) if fields else {},
        )

    async def publish(self, packet: Publish) -> Acknowledgement:
        """Through the outbox, if there is one and the message is of QoS 1 or 2."""
        connection = self._connection
        if packet.qos and connection.outbox is not None:
            if not connection.outbox.make_room():
                await connection.outbox.room.wait()
                connection.check()
            return await connection.outbox.put(packet)
        return await self.publish_now(packet)

    async def publish_now(self, packet: Publish) -> Acknowledgement:
        """Past the outbox."""
        connection = self._connection
        if packet.qos == 0:
            if connection.must_wait:
                await connection.wait_writable()
            connection.session.publisher.publish_qos0(packet)
            if connection.must_wait:
                await connection.wait_writable()
            return SENT
        await connection.room.wait()
        connection.check()
        waiter: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
        connection.session.publisher.publish(Outgoing(packet, waiter))
        connection.expect_answer()
        return await waiter
