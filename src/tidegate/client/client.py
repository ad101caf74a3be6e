"""The client's public face.

async with Client("mqtt://localhost") as client:
    await client.subscribe("sensors/#", qos=1)
    async for message in client.messages:
        print(message.topic, message.text)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, Unpack

from tidegate.client.callbacks import Callback
from tidegate.client.connection import Connection, State
from tidegate.client.deadlines import no_response, not_acknowledged, took_too_long
from tidegate.client.errors import (
    ClientError,
    ConnectionLost,
    NoResponder,
    NotConnected,
    NotSupported,
    OperationTimeout,
    Refused,
    SubscribeRefused,
)
from tidegate.client.fanout import FanOut
from tidegate.client.fields import MessageFields, Payload
from tidegate.client.inbox import Inbox, Messages
from tidegate.client.limits import ServerLimits
from tidegate.client.message import Message
from tidegate.client.options import ClientOptions
from tidegate.client.publishing import SENT, Acknowledgement, Outgoing
from tidegate.client.repeating import Answered, Repeating
from tidegate.client.sending import Sender
from tidegate.client.subscribing import (
    Request,
    TopicFilter,
    check_filters,
    subscribe_packet,
    subscription_list,
)
from tidegate.flow import timeout_policy
from tidegate.flow.load_report import LoadReport
from tidegate.flow.timeout import NAME as LOAD_PROPERTY
from tidegate.flow.timeout import UNKNOWN, Announcement, TimeoutPolicy, parse_announcement
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.packets import Connack, Disconnect, Subscription, Unsubscribe
from tidegate.mqtt.properties import Properties, Property
from tidegate.net.addresses import Endpoint, parse_address

T = TypeVar("T")
UserProperties: TypeAlias = tuple[tuple[str, str], ...]

_DEFAULT: Any = object()
"""Stands for `options.operation_timeout` where None already means no limit."""

_CLOSE_TIMEOUT = 5.0


def _no_losses(_response: Message) -> int:
    return 0


def _load_of(message: Message) -> Announcement:
    """What its sender announced; the very UNKNOWN if nothing."""
    text = dict(message.user_properties).get(LOAD_PROPERTY)
    return parse_announcement(text) if text else UNKNOWN


class Client:
    """An asyncio client for MQTT 5 and 3.1.1. One use: connect, work, disconnect.

    `address` is a URL as `tidegate.net.addresses` reads it, or `host`, or `host:port`. Options come as a
    `ClientOptions`, as keyword arguments of the same names, or both. All calls belong to one event loop.
    Every `timeout` is in seconds; None means no limit, absent means `operation_timeout` of the options.
    """

    def __init__(self, address: str | Endpoint, options: ClientOptions | None = None, **changes: Any) -> None:
        self.endpoint = parse_address(address) if isinstance(address, str) else address
        self.options = replace(options or ClientOptions(), **changes)
        self._connection = Connection(self.endpoint, self.options)
        self._sender = Sender(self._connection)
        self._subscribing_to_responses = asyncio.Lock()
        self._fan_out = FanOut(
            lambda topic_filter, qos, taker: self.subscribe(topic_filter, qos=qos, callback=taker),
            lambda topic_filter: self._end_subscriptions([topic_filter], self.options.operation_timeout),
        )
        self.messages = Messages(self._connection.routes.common, self._connection.reports)
        """What arrives, as an asynchronous iterator. It ends when this side disconnects, and raises
        `ConnectionLost` when the connection is lost for good; what had arrived before is given first."""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.disconnect()

    @property
    def is_connected(self) -> bool:
        return self._connection.state is State.OPEN

    @property
    def client_id(self) -> str:
        """The identifier in use, also if the server assigned it."""
        return self._connection.session.client_id

    @property
    def connack(self) -> Connack:
        """How the server answered the latest CONNECT."""
        return self._connection.connack

    @property
    def limits(self) -> ServerLimits:
        return self._connection.session.limits

    @property
    def subscriptions(self) -> list[str]:
        """The topic filters the server granted."""
        return self._connection.session.requests.granted

    async def connect(self) -> Connack:
        """Open the connection; raises `ConnectRefused`, `ConnectionLost`, or `DialError` of the network."""
        await self._connection.open()
        return self.connack

    async def disconnect(
        self,
        reason_code: int = ReasonCode.NORMAL_DISCONNECTION,
        *,
        session_expiry_interval: int | None = None,
        timeout: float = _CLOSE_TIMEOUT,
    ) -> None:
        """Send DISCONNECT and close; harmless if there is no connection. 0x04 asks for the will message.

        Calls that still wait raise `NotConnected`; `messages` ends after what has arrived.
        """
        properties: Properties = {}
        if session_expiry_interval is not None:
            properties[Property.SESSION_EXPIRY_INTERVAL] = session_expiry_interval
        await self._connection.close(Disconnect(reason_code=reason_code, properties=properties), timeout)

    async def wait_closed(self) -> None:
        """Wait until this side disconnects; raises what ended the connection for good if it was not this side.

        For programs that have only callbacks.
        """
        await self._connection.wait_ended()

    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        timeout: float | None = _DEFAULT,
        **fields: Unpack[MessageFields],
    ) -> Acknowledgement:
        """Publish and wait: at QoS 0 until the network takes it, else until the server has acknowledged.

        With `reconnect` it waits through a loss of the connection, too. With an outbox it returns as soon as a
        message of QoS 1 or 2 is on disk; `flush` waits for the server. Raises `PublishRefused` for a reason code of
        0x80 or above, `NotSupported`, `OperationTimeout`, `OutboxFull`, and what ended the connection.
        """
        seconds = self._seconds(timeout)
        packet = self._sender.packet(topic, payload, qos, retain, fields)
        connection = self._connection
        if qos == 0 or connection.outbox is not None or not connection.room.is_free:
            if qos == 0 and not connection.must_wait:
                connection.session.publisher.publish_qos0(packet)
                if not connection.must_wait:
                    return SENT
                await _within(seconds, connection.wait_writable(), "to take what was sent")
                return SENT
            return await _within(
                seconds, self._sender.publish(packet), f"to acknowledge a message to {topic!r}"
            )
        # The common case without the tasks and timers of the others.
        waiter: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
        connection.session.publisher.publish(Outgoing(packet, waiter))
        connection.expect_answer()
        if seconds is not None:
            connection.deadlines.add(waiter, seconds, not_acknowledged, topic)
        return await waiter

    def publish_nowait(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        **fields: Unpack[MessageFields],
    ) -> asyncio.Future[Acknowledgement]:
        """Publish without waiting; the future has what `publish` would return or raise.

        Raises `ClientError` when the message would only pile up: at QoS 0 if the network does not keep up,
        else if `send_queue_size`, or the outbox, is full.
        """
        packet = self._sender.packet(topic, payload, qos, retain, fields)
        connection = self._connection
        if qos and connection.outbox is not None:
            if not connection.outbox.make_room():
                raise ClientError("the outbox is full", hint="await publish() instead")
            return connection.outbox.put(packet)
        if connection.must_wait if qos == 0 else not connection.room.is_free:
            raise ClientError("no more can be sent just now", hint="await publish() instead")
        future: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()
        if qos == 0:
            connection.session.publisher.publish_qos0(packet)
            future.set_result(SENT)
        else:
            connection.session.publisher.publish(Outgoing(packet, future))
            connection.expect_answer()
        return future

    async def flush(self, timeout: float | None = _DEFAULT) -> None:
        """Wait until the server has acknowledged everything that was published at QoS 1 and 2."""
        seconds = self._seconds(timeout)
        await _within(seconds, self._connection.wait_acknowledged(), "to acknowledge what was published")

    async def subscribe(
        self,
        *topics: TopicFilter,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int | None = None,
        user_properties: UserProperties = (),
        callback: Callback | None = None,
        timeout: float | None = _DEFAULT,
    ) -> list[int]:
        """Subscribe to filters, `(filter, qos)` pairs or `Subscription` objects; gives the QoS granted each.

        The keyword arguments are for filters that come alone. With a `callback`, a function or a coroutine function,
        it gets what these filters match instead of `messages`, one message after another, each acknowledged when the
        callback is done with it. Raises `SubscribeRefused` if the server refuses any; the others are in effect all
        the same.
        """
        subscriptions = subscription_list(topics, qos, no_local, retain_as_published, retain_handling)
        seconds = self._seconds(timeout)
        self._check_subscribe(subscriptions, identifier)
        if callback is not None and not callable(callback):
            raise ClientError(
                f"a callback is a function of one message, not {callback!r}",
                hint="pass the function, uncalled",
            )
        inbox = None if callback is None else self._connection.callbacks.start(callback)
        return await self._subscribe(subscriptions, inbox, identifier, user_properties, seconds)

    @asynccontextmanager
    async def subscribed(
        self,
        *topics: TopicFilter,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int | None = None,
        user_properties: UserProperties = (),
        timeout: float | None = _DEFAULT,
    ) -> AsyncIterator[Messages]:
        """Subscribe for the length of a block, which gets what its filters match as an iterator of its own.

        At its end the subscriptions end, and what the block has not taken is acknowledged and dropped.
        """
        subscriptions = subscription_list(topics, qos, no_local, retain_as_published, retain_handling)
        connection = self._connection
        seconds = self._seconds(timeout)
        self._check_subscribe(subscriptions, identifier)
        inbox = connection.new_inbox()
        try:
            await self._subscribe(subscriptions, inbox, identifier, user_properties, seconds)
            yield Messages(inbox, connection.reports)
        finally:
            try:
                await self._end_subscriptions([each.topic_filter for each in subscriptions], seconds)
            finally:
                connection.drop(inbox)

    @asynccontextmanager
    async def listening(
        self, topic_filter: str, callback: Callable[[Message], None], *, qos: int = 0
    ) -> AsyncIterator[None]:
        """For the length of a block `callback` gets what the filter matches, beside others who listen to the same.

        The callback must not wait. Whoever subscribes to the filter in another way takes it from all of them.
        """
        key = await self._fan_out.add(topic_filter, qos, callback)
        try:
            yield
        finally:
            await self._fan_out.remove(topic_filter, key)

    async def _end_subscriptions(self, names: list[str], seconds: float | None) -> None:
        connection = self._connection
        granted = [name for name in names if name in self.subscriptions]
        try:
            if granted and self.is_connected:
                await self.unsubscribe(*granted, timeout=seconds)
            elif granted and connection.state is State.RECONNECTING:
                connection.session.requests.unsubscribe_later(granted)
        except (ConnectionLost, NotConnected):
            pass  # The subscriptions went with the connection.
        except OperationTimeout:
            connection.session.requests.unsubscribe_later(granted)
            raise
        finally:
            for name in names:
                connection.routes.remove(name)

    async def unsubscribe(
        self,
        *topic_filters: str,
        user_properties: UserProperties = (),
        timeout: float | None = _DEFAULT,
    ) -> list[int]:
        """End subscriptions; gives a reason code each, 0x11 where there was none (MQTT 5)."""
        seconds = self._seconds(timeout)
        self._connection.check()
        check_filters(topic_filters)
        properties: Properties = {Property.USER_PROPERTY: list(user_properties)} if user_properties else {}
        packet = Unsubscribe(packet_identifier=0, topic_filters=list(topic_filters), properties=properties)
        waiter: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._connection.session.requests.send(Request(packet, waiter))
        self._connection.expect_answer()
        codes = await _within(seconds, waiter, "to answer UNSUBSCRIBE")
        for topic_filter in topic_filters:
            self._connection.routes.remove(topic_filter)
        return codes

    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        timeout: float | None = _DEFAULT,
        qos: int = 1,
        **fields: Unpack[MessageFields],
    ) -> Message:
        """Publish a request and wait for its response (MQTT 5 section 4.10).

        Unless told otherwise the request expires together with the patience of the caller, so nobody works
        for one who left. Raises `NoResponder` if the server knows of no subscriber (QoS 1 and 2).
        """
        if self.options.protocol_version < 5:
            raise NotSupported("MQTT 3.1.1 has no request and response", hint="use protocol version 5")
        connection = self._connection
        connection.check()
        seconds = self._seconds(timeout)
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        response.add_done_callback(lambda done: done.cancelled() or done.exception())  # asked for or not
        if seconds is not None:
            fields.setdefault("message_expiry_interval", max(1, math.ceil(seconds)))
            connection.deadlines.add(response, seconds, no_response, topic)
        correlation = connection.calls.open(response)
        try:
            request = self._send_request(topic, payload, qos, fields, correlation)
            await _within(seconds, request, f"to take a request to {topic!r}")
            return await response
        finally:
            connection.calls.close(correlation)
            response.cancel()

    async def watch(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        policy: TimeoutPolicy | str = "active",
        losses: Callable[[Message], int] = _no_losses,
        nudge: str | None = None,
        timeout: float = 2.0,
        qos: int = 1,
        random: Random | None = None,
        **fields: Unpack[MessageFields],
    ) -> AsyncIterator[Message]:
        """Repeat a request for ever and give its responses: `async for response in client.watch(…)`.

        With `reconnect` that is through losses of the connection, too; without, a lost connection ends it.

        `policy` says how long to wait in between: "active", "adaptive", "fixed" and the others of `flow.TIMEOUT`, or
        an object. `losses` looks at a response and says how many updates it brought that nobody had told of; that
        is what the adaptive policies live on. A message on the topic filter `nudge` is a reason to ask soon. The load
        is read from the User Property `tide-load` of responses and of such messages. A request without response is one
        more to repeat.
        """
        found: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        clock = asyncio.get_running_loop()

        async def ask() -> Answered:
            began = clock.time()
            try:
                response = await self.request(topic, payload, timeout=timeout, qos=qos, **fields)
            except (NotSupported, Refused):
                raise
            except ClientError:
                if self._connection.state not in (State.OPEN, State.RECONNECTING):
                    raise
                return Answered(is_dropped=True)
            seconds = clock.time() - began  # without the time that the taker of responses takes
            await found.put(response)
            return Answered(losses=losses(response), load=_load_of(response), seconds=seconds)

        made = timeout_policy(policy)() if isinstance(policy, str) else policy
        repeating = Repeating(ask, made.loop(), random)
        async with AsyncExitStack() as stack:
            if nudge is not None:
                on_nudge = lambda message: repeating.nudge(_load_of(message))  # noqa: E731
                await stack.enter_async_context(self.listening(nudge, on_nudge))
            work = asyncio.ensure_future(repeating.run())
            getting = asyncio.ensure_future(found.get())
            try:
                while True:
                    await asyncio.wait([getting, work], return_when=asyncio.FIRST_COMPLETED)
                    if not getting.done():
                        work.result()
                    yield getting.result()
                    getting = asyncio.ensure_future(found.get())
            finally:
                work.cancel()
                getting.cancel()
                await asyncio.gather(work, getting, return_exceptions=True)

    async def respond(
        self,
        request: Message,
        payload: Payload = b"",
        *,
        qos: int = 1,
        timeout: float | None = _DEFAULT,
        **fields: Unpack[MessageFields],
    ) -> Acknowledgement:
        """Answer a request where its sender waits; raises `ClientError` if it names no Response Topic."""
        if request.response_topic is None:
            raise ClientError(
                f"the message on {request.topic!r} asks for no response", hint="look at response_topic first"
            )
        if request.correlation_data is not None:
            fields["correlation_data"] = request.correlation_data
        return await self.publish(request.response_topic, payload, qos=qos, timeout=timeout, **fields)

    def ack_many(self, messages: Iterable[Message]) -> None:
        """`message.ack()` for each, the acknowledgements in one piece; see `Messages.get_many`."""
        receipts = [message.receipt for message in messages]
        self._connection.session.receiver.acknowledge_many(each for each in receipts if each is not None)

    def report_load(
        self, *, queue_length: int, processing_time: float, count: int | None = None
    ) -> bool:
        """Tell the server our load as the application sees it: messages that wait, and seconds one takes on average.

        `count` is how many messages that average is over. Use it with `reports=ReportOptions(manual=True)`. False if
        there is no connection, or the server takes no reports.
        """
        return self._connection.reports.report(
            LoadReport(queue_length=queue_length, processing_time=processing_time, count=count)
        )

    def statistics(self) -> dict[str, int | str]:
        """Counters since the client was made, and what waits now."""
        return self._connection.statistics()

    def _check_subscribe(self, subscriptions: list[Subscription], identifier: int | None) -> None:
        """Before anything is begun that would have to be undone."""
        self._connection.check()
        check_filters([subscription.topic_filter for subscription in subscriptions])
        for subscription in subscriptions:
            self.limits.check_subscribe(subscription, identifier)

    async def _subscribe(
        self,
        subscriptions: list[Subscription],
        inbox: Inbox | None,
        identifier: int | None,
        user_properties: UserProperties,
        seconds: float | None,
    ) -> list[int]:
        connection = self._connection
        names = [subscription.topic_filter for subscription in subscriptions]
        if inbox is not None:
            connection.routes.add(names, inbox)  # Retained messages may come before the SUBACK.
        else:
            for name in names:
                connection.routes.remove(name)
        waiter: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        try:
            packet = subscribe_packet(subscriptions, identifier, user_properties)
            connection.session.requests.send(Request(packet, waiter))
            connection.expect_answer()
            return await _within(seconds, waiter, "to answer SUBSCRIBE")
        except SubscribeRefused as error:
            for name, code in zip(error.topic_filters, error.reason_codes, strict=True):
                if code >= 0x80:
                    connection.routes.remove(name)
            raise
        except BaseException:
            for name in names:
                connection.routes.remove(name)
            raise

    async def _send_request(
        self, topic: str, payload: Payload, qos: int, fields: MessageFields, correlation: bytes
    ) -> None:
        calls = self._connection.calls
        if not calls.topic:
            async with self._subscribing_to_responses:
                if not calls.topic:
                    calls.topic = await self._subscribe_to_responses()
        fields["response_topic"], fields["correlation_data"] = calls.topic, correlation
        packet = self._sender.packet(topic, payload, qos, False, fields)
        # Not into the outbox: nobody will wait for the response in a later process. QoS 2 has to, for there its
        # packet identifiers must be known to a later process.
        is_kept = qos == 2 and self._connection.outbox is not None
        acknowledgement = await (
            self._sender.publish(packet) if is_kept else self._sender.publish_now(packet)
        )
        if acknowledgement.reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
            raise NoResponder(f"nobody is subscribed to {topic!r}", hint="start the one who answers")

    async def _subscribe_to_responses(self) -> str:
        prefix = self.limits.response_information or self.options.response_topic_prefix
        topic = self._connection.calls.new_topic(prefix, self.client_id)
        try:
            await self.subscribe(topic, qos=1, timeout=None)
        except asyncio.CancelledError:
            # The server may grant it all the same, and the next request takes a topic of its own.
            self._connection.session.requests.unsubscribe_later([topic])
            raise
        return topic

    def _seconds(self, timeout: float | None) -> float | None:
        seconds = self.options.operation_timeout if timeout is _DEFAULT else timeout
        if seconds is not None and seconds < 0:
            raise ClientError(f"timeout is {seconds:g}", hint="give seconds from 0 on, or None for no limit")
        return seconds


async def _within(seconds: float | None, work: Awaitable[T], what: str) -> T:
    if seconds is None:
        return await work
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await work
    except TimeoutError:
        if not deadline.expired():
            raise
        raise took_too_long(seconds, what) from None
