"""Where devices are and how loud gateways hear them: the emulator's radio, and the ground truth of E4.6.

Log-distance path loss with shadowing that is drawn anew for each advertisement: the textbook model of Bluetooth
indoors (exponent 2.5, standard deviation a few dB).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import dist, log10
from random import Random

SILENCE = -95.0
"""dBm below which a gateway hears nothing."""
_AT_ONE_METRE = -50.0
_EXPONENT = 2.5


def strength(metres: float) -> float:
    """Expected RSSI in dBm."""
    return _AT_ONE_METRE - 10.0 * _EXPONENT * log10(max(1.0, metres))


@dataclass(slots=True)
class Place:
    """A point, and the velocity of what moves, in metres and metres per second."""

    x: float
    y: float
    dx: float = 0.0
    dy: float = 0.0


class Field:
    """A rectangle of `width` by `height` metres with gateways on a grid and devices anywhere."""

    def __init__(
        self, gateways: list[str], width: float, height: float, *, noise: float, random: Random
    ) -> None:
        self.width = width
        self.height = height
        self.noise = noise
        self._random = random
        columns = max(1, round((len(gateways) * width / height) ** 0.5))
        rows = -(-len(gateways) // columns)
        self.gateways = {
            name: Place((n % columns + 0.5) * width / columns, (n // columns + 0.5) * height / rows)
            for n, name in enumerate(gateways)
        }
        self.devices: dict[str, Place] = {}
        self.silent: set[str] = set()
        """Gateways that hear nothing because they are dead."""

    def add(self, device: str, *, speed: float = 0.0) -> None:
        random = self._random
        place = Place(random.uniform(0.0, self.width), random.uniform(0.0, self.height))
        if speed:
            place.dx = random.choice((-1, 1)) * speed * random.uniform(0.3, 1.0)
            place.dy = random.choice((-1, 1)) * speed * random.uniform(0.3, 1.0)
        self.devices[device] = place

    def move(self, seconds: float) -> None:
        """Let time pass; what reaches a wall turns round."""
        for place in self.devices.values():
            if place.dx or place.dy:
                place.x, place.dx = _bounce(place.x + place.dx * seconds, place.dx, self.width)
                place.y, place.dy = _bounce(place.y + place.dy * seconds, place.dy, self.height)

    def advertise(self, device: str) -> Iterator[tuple[str, float]]:
        """One advertisement: who hears it, and how loud."""
        at = self.devices[device]
        for name, place in self.gateways.items():
            heard = strength(dist((at.x, at.y), (place.x, place.y))) + self._random.gauss(0.0, self.noise)
            if heard >= SILENCE and name not in self.silent:
                yield name, heard

    def best(self, device: str) -> str | None:
        """The live gateway that is nearest."""
        at = self.devices[device]
        live = {name: place for name, place in self.gateways.items() if name not in self.silent}
        if not live:
            return None
        return min(live, key=lambda name: dist((at.x, at.y), (live[name].x, live[name].y)))

    def distance(self, device: str, gateway: str) -> float:
        at, place = self.devices[device], self.gateways[gateway]
        return dist((at.x, at.y), (place.x, place.y))


def _bounce(position: float, velocity: float, end: float) -> tuple[float, float]:
    if position < 0.0:
        return -position, -velocity
    if position > end:
        return 2.0 * end - position, -velocity
    return position, velocity
