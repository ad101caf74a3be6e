"""What a run does: the modes with their defaults, and the checks that turn options into a `Settings`."""

from __future__ import annotations

import math
import re
import secrets
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from tidegate.load.errors import SettingsError
from tidegate.load.packets import MAXIMUM_BURST, MINIMUM_PAYLOAD_BYTES


class Mode(StrEnum):
    """Who publishes to whom, and how fast."""

    PAIRS = "pairs"  # each publisher to its own subscriber, as fast as they go
    FANOUT = "fanout"  # one publisher, every subscriber gets everything
    FANIN = "fanin"  # every publisher to one subscriber
    SHARED = "shared"  # publishers to one shared-subscription group
    TRICKLE = "trickle"  # pairs at a fixed, low rate each
    IDLE = "idle"  # connections with a subscription each and no traffic: memory
    HOLD = "hold"  # connections kept alive for a while, one QoS 1 message each: none may get lost


@dataclass(kw_only=True, slots=True, frozen=True)
class Settings:
    """One run. Times in seconds.

    `window` caps messages sent and not yet received, per publisher; a group of publishers to one subscriber
    shares the sum. With it no broker has to drop because the tool reads too slowly, and every broker gets
    the same load. `inflight` caps the unacknowledged QoS 1 and 2 messages of a publisher, and `batch` what
    it sends with one call.
    """

    mode: Mode
    host: str = "127.0.0.1"
    port: int = 1883
    pid: int | None = None
    protocol: int = 4
    qos: int = 0
    publishers: int = 10
    subscribers: int = 10
    payload_bytes: int = 64
    seconds: float = 5.0
    warmup: float = 1.0
    window: int = 2000
    inflight: int = 100
    batch: int = 200
    persistent: bool = False  # subscribers ask for sessions that outlive their connection
    rate: float = 20.0  # messages a second and publisher, trickle only
    connect_rate: float = 1500.0  # new connections a second, 0 for no limit: brokers may refuse more
    keep_alive: int = 30  # hold only; the saturating modes send none
    quiet: float = 3.0  # after sending ends: give up on what is missing after so long without progress
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    name: str = field(default_factory=lambda: secrets.token_hex(4))  # part of client identifiers and topics

    @property
    def topic_prefix(self) -> str:
        return f"tidebench/{self.name}"


_DEFAULTS: dict[Mode, dict[str, Any]] = {
    Mode.PAIRS: {},
    Mode.FANOUT: {"publishers": 1, "subscribers": 50},
    # 200 for each of 50 publishers: 10 000 messages on their way to the one subscriber.
    Mode.FANIN: {"publishers": 50, "subscribers": 1, "window": 200, "batch": 100},
    Mode.SHARED: {"protocol": 5},
    Mode.TRICKLE: {"publishers": 200, "subscribers": 200},
    Mode.IDLE: {"publishers": 0, "subscribers": 10_000, "keep_alive": 0, "seconds": 1.0},
    Mode.HOLD: {"publishers": 1, "subscribers": 15_000, "qos": 1, "seconds": 60.0},
}


def make_settings(mode: str, **options: Any) -> Settings:
    """Return the settings of a run: the mode's defaults, then every option that is not None."""
    try:
        chosen = Mode(mode)
    except ValueError:
        names = ", ".join(Mode)
        raise SettingsError(f"there is no load mode {mode!r}", hint=f"choose one of {names}") from None
    known = {each.name for each in fields(Settings)}
    for name in options:
        if name not in known:
            raise SettingsError(
                f"there is no load option {name!r}", hint=f"known are {', '.join(sorted(known))}"
            )
    given = {name: value for name, value in options.items() if value is not None}
    return _check(Settings(mode=chosen, **{**_DEFAULTS[chosen], **given}))


def _check(settings: Settings) -> Settings:
    def require(claim: bool, text: str) -> None:
        if not claim:
            raise SettingsError(f"mode {settings.mode}: {text}")

    paired = settings.mode in (Mode.PAIRS, Mode.TRICKLE)
    require(
        re.fullmatch(r"[A-Za-z0-9_-]{1,32}", settings.name) is not None,
        "name has 1 to 32 letters, digits, _ and -",
    )
    require(settings.protocol in (4, 5), "protocol is 4 (MQTT 3.1.1) or 5")
    require(settings.qos in (0, 1, 2), "qos is 0, 1 or 2")
    require(settings.subscribers > 0, "at least one subscriber is needed")
    require(settings.publishers > 0 or settings.mode is Mode.IDLE, "at least one publisher is needed")
    require(settings.publishers < 10_000 and settings.subscribers < 1_000_000, "too many clients")
    require(
        not paired or settings.publishers == settings.subscribers, "needs as many publishers as subscribers"
    )
    require(settings.mode is not Mode.FANOUT or settings.publishers == 1, "has one publisher")
    require(settings.mode is not Mode.FANIN or settings.subscribers == 1, "has one subscriber")
    require(
        settings.payload_bytes >= MINIMUM_PAYLOAD_BYTES, f"payload_bytes is {MINIMUM_PAYLOAD_BYTES} or more"
    )
    require(settings.seconds > 0 and settings.warmup >= 0, "seconds and warmup are positive")
    # The sequence number has 16 bits: half of them tell what is missing from what comes again.
    require(0 < settings.window <= 32_000, "window is 1 to 32000")
    require(0 < settings.inflight <= 32_000, "inflight is 1 to 32000")
    require(0 < settings.batch <= MAXIMUM_BURST, f"batch is 1 to {MAXIMUM_BURST}")
    require(settings.rate > 0 and math.isfinite(settings.rate), "rate is positive")
    require(settings.connect_rate >= 0 and math.isfinite(settings.connect_rate), "connect_rate is 0 or more")
    require(0 <= settings.keep_alive <= 65535, "keep_alive is 0 to 65535")
    require(
        settings.mode is not Mode.IDLE or settings.pid is not None,
        "needs the broker's pid to read its memory",
    )
    return replace(settings, batch=min(settings.batch, settings.window))
