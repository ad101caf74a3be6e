"""When to send PINGREQ, and when to give the server up for dead. Pure: the time comes in as `now`."""

from __future__ import annotations

from enum import StrEnum


class Due(StrEnum):
    NOTHING = "nothing"
    PING = "ping"
    DEAD = "dead"


class KeepAlive:
    """Watches one connection. `interval` 0 means never; both in seconds.

    A ping is due when nothing was *sent* for nearly the interval, because the server may then close
    [MQTT5-3.1.2-20], and also when nothing was *received* for that long: a client that only publishes QoS 0
    would otherwise never notice that nobody is there. Any byte counts as a sign of life, since a PINGRESP may
    wait behind a long message.
    """

    def __init__(self, interval: float, ping_timeout: float, now: float) -> None:
        # Earlier by up to a second, so that the ping is on the wire before the interval is over.
        self._idle = max(interval - 1.0, interval * 0.75)
        self._ping_timeout = ping_timeout
        self._sent = self._received = now
        self._pinged: float | None = None

    def on_sent(self, now: float) -> None:
        self._sent = now

    def on_received(self, now: float) -> None:
        self._received = now
        self._pinged = None

    def next_check(self) -> float | None:
        """When to call `check` next, or None for never."""
        if not self._idle:
            return None
        ping_at = min(self._sent, self._received) + self._idle
        if self._pinged is None:
            return ping_at
        return min(self._pinged + self._ping_timeout, self._sent + self._idle)

    def check(self, now: float, *, is_listening: bool = True) -> Due:
        """What to do now. While we do not read ourselves (`is_listening` False) silence proves nothing."""
        if not self._idle:
            return Due.NOTHING
        if not is_listening:
            self._received, self._pinged = now, None
        if self._pinged is not None and now >= self._pinged + self._ping_timeout:
            return Due.DEAD
        is_quiet = self._pinged is None and now >= self._received + self._idle
        if is_quiet or now >= self._sent + self._idle:
            if self._pinged is None:
                self._pinged = now
            return Due.PING
        return Due.NOTHING
