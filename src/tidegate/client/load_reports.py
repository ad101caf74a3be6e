"""Sends load reports by the way that was agreed on, and connects the meter with what the application does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Final

from tidegate.client.load_meter import Carrier, LoadMeter, ReportOptions
from tidegate.client.message import Message, Receipt
from tidegate.client.session import Session
from tidegate.flow.load_report import LOAD_PROPERTY, LOAD_TOPIC, NEGOTIATION, LoadReport
from tidegate.mqtt.packets import Connack, Publish
from tidegate.mqtt.properties import Property

log = logging.getLogger(__name__)

_PINGREQ: Final = b"\xc0\0"
_TAKERS: Final = 100  # with more than this, and twice as many as before, those that ended are looked for


class LoadReports:
    """Of one client. Does nothing, and costs nothing, while `is_on` is False."""

    def __init__(
        self, options: ReportOptions, session: Session, queue_length: Callable[[], int], *, manual_ack: bool
    ) -> None:
        self._options = options
        self._session = session
        self._queue_length = queue_length
        self._manual_ack = manual_ack
        self._meter = LoadMeter(options)
        self._carrier = Carrier.OFF
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = False
        self._carried = 0
        self._forget_above = _TAKERS
        self._has_warned = False
        self.is_on = False
        self.sent = 0
        self.sent_bytes = (
            0  # what reports add to the packets that carry them, or the whole packet of a PINGREQ
        )

    @property
    def carrier(self) -> Carrier:
        """What this connection uses; never AUTO."""
        return self._carrier

    def on_connected(self, connack: Connack, waiting_qos0: int) -> None:
        """`waiting_qos0` messages of an earlier connection are still in the queue."""
        self._carrier = self._agreed(connack)
        self._is_connected = self._carrier is not Carrier.OFF
        self.is_on = self._is_connected and not self._options.manual
        if (
            not self._is_connected
            and self._options.carrier not in (Carrier.AUTO, Carrier.OFF)
            and not self._has_warned
        ):
            self._has_warned = True
            hint = 'reports="publish" needs nothing of the connection; "auto" says nothing where it cannot report'
            log.warning(
                "load reports cannot be sent as asked for",
                extra={"carrier": self._options.carrier, "hint": hint},
            )
        receiver = self._session.receiver
        receiver.on_acknowledged = self._on_acknowledged if self.is_on else None
        receiver.next_report = self._for_puback if self.is_on and self._carrier is Carrier.PUBACK else None
        if self.is_on:
            self._carried = waiting_qos0
            self._meter.on_connected(time.monotonic())
            if self._options.when_idle:
                self._schedule(self._options.interval)

    def on_connection_lost(self) -> None:
        self._is_connected = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_taken(self, message: Message, taker: Hashable) -> None:
        """The application took a message; see `LoadMeter` for `taker`. Only while `is_on`."""
        now = time.monotonic()
        if self._meter.takers > self._forget_above:
            self._forget(now)
        receipt = message.receipt
        if receipt is None:
            is_current = not self._carried
            self._carried -= not is_current
            self._meter.on_taken(taker, now, is_of_this_connection=is_current)
        elif self._manual_ack:
            self._meter.on_ended(taker, now)
            receipt.taken_at = now
        else:
            is_current = receipt.connection == self._session.receiver.connection
            self._meter.on_taken(taker, now, is_of_this_connection=is_current)
        self.on_changed()

    def on_ended(self, taker: Hashable) -> None:
        """The application is done with what `taker` took. Only while `is_on`."""
        self._meter.on_ended(taker, time.monotonic())
        self.on_changed()

    def on_skipped(self, number: int = 1) -> None:
        """Messages were delivered that no application will take."""
        self._meter.on_skipped(number)

    def on_changed(self) -> None:
        """Report if that is due now, else look again before long. Only while `is_on`."""
        if not self._is_connected or self._carrier is Carrier.PUBACK:
            return
        now = time.monotonic()
        queue_length = self._queue_length()
        if self._meter.is_due(queue_length, now):
            self._send(queue_length, now)
        if self._timer is None:
            self._schedule(self._meter.next_look(now))

    def report(self, report: LoadReport) -> bool:
        """Send what the application measured itself; False if the server does not want to know."""
        if not self._is_connected:
            return False
        self.sent += 1
        if self._carrier is Carrier.PING:
            self._session.wire.send_bytes(self._pingreq(report))
        elif self._carrier is Carrier.PUBLISH:
            self._publish(report)
        else:
            receiver = self._session.receiver

            def once() -> tuple[str, str]:
                receiver.next_report = self._for_puback if self.is_on else None
                value = report.encode_value()
                self.sent_bytes += len(value)
                return LOAD_PROPERTY, value

            receiver.next_report = once
        return True

    def ping(self) -> bytes:
        """The PINGREQ that keep alive asks for: with a report if these travel so and there was one before."""
        if self._carrier is not Carrier.PING or not self._meter.has_reported:
            return _PINGREQ
        self.sent += 1
        return self._pingreq(self._meter.take_report(self._queue_length(), time.monotonic()))

    def _agreed(self, connack: Connack) -> Carrier:
        wanted = Carrier(self._options.carrier)
        is_version_5 = self._session.wire.version >= 5
        if wanted in (Carrier.AUTO, Carrier.PING):
            is_offered = NEGOTIATION in connack.properties.get(Property.USER_PROPERTY, ())
            return Carrier.PING if is_version_5 and is_offered else Carrier.OFF
        if wanted is Carrier.PUBACK and not is_version_5:
            return Carrier.OFF
        return wanted

    def _send(self, queue_length: int, now: float) -> None:
        self.sent += 1
        if self._carrier is Carrier.PING:
            self._session.wire.send_bytes(self._pingreq(self._meter.take_report(queue_length, now)))
        else:
            self._publish(self._meter.take_report(queue_length, now))

    def _publish(self, report: LoadReport) -> None:
        payload = report.encode_value().encode()
        self.sent_bytes += len(payload)
        self._session.publisher.publish_qos0(Publish(topic=LOAD_TOPIC, payload=payload))

    def _pingreq(self, report: LoadReport) -> bytes:
        body = report.encode_pingreq()
        assert len(body) < 0x80  # Four numbers; 127 bytes hold any that fit a report.
        self.sent_bytes += 2 + len(body)
        return bytes((0xC0, len(body))) + body

    def _for_puback(self) -> tuple[str, str] | None:
        now = time.monotonic()
        queue_length = self._queue_length()
        if not self._meter.is_due(queue_length, now):
            return None
        self.sent += 1
        value = self._meter.take_report(queue_length, now).encode_value()
        self.sent_bytes += len(value)
        return LOAD_PROPERTY, value

    def _on_acknowledged(self, receipt: Receipt) -> None:
        """With manual acknowledgement this is when a message was processed."""
        now = time.monotonic()
        self._meter.on_done(now - receipt.taken_at)
        receipt.taken_at = 0.0
        self.on_changed()

    def _schedule(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._is_connected:
            return
        now = time.monotonic()
        self._forget(now)
        queue_length = self._queue_length()
        if self._meter.is_due(queue_length, now):
            self._send(queue_length, now)
        # Quiet: the next message starts the clock again.
        if self._options.when_idle or self._meter.has_news or queue_length:
            self._schedule(self._meter.next_look(now))

    def _forget(self, now: float) -> None:
        """A task that ended without asking for another message has processed the one it had."""
        self._meter.forget(lambda taker: isinstance(taker, asyncio.Task) and taker.done(), now)
        self._forget_above = max(_TAKERS, 2 * self._meter.takers)
