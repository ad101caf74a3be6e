"""What a rate will be in the next interval, from what it was: the paper leaves the predictor open (ambiguity 2)."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Protocol


class Predictor(Protocol):
    """Fed with one value an interval. `deviation` is how far predictions were off, as a standard deviation."""

    deviation: float

    def update(self, value: float) -> None: ...

    def predict(self) -> float: ...


class LastValue:
    """The next is as the last; `paper` mode."""

    __slots__ = ("_value", "deviation")

    def __init__(self) -> None:
        self._value = 0.0
        self.deviation = 0.0

    def update(self, value: float) -> None:
        self._value = value

    def predict(self) -> float:
        return self._value


class Ewma:
    """Exponentially weighted mean."""

    __slots__ = ("_alpha", "_is_new", "_value", "_variance", "deviation")

    def __init__(self, alpha: float = 0.5) -> None:
        self._alpha = alpha
        self._is_new = True
        self._value = 0.0
        self._variance = 0.0
        self.deviation = 0.0

    def update(self, value: float) -> None:
        if self._is_new:
            self._is_new = False
            self._value = value
            return
        error = value - self._value
        self._value += self._alpha * error
        self._variance += self._alpha * (error * error - self._variance)
        self.deviation = sqrt(self._variance)

    def predict(self) -> float:
        return self._value


class Holt:
    """Level and trend. Never below 0; a trend is damped, so that one jump is not taken for a climb without end."""

    __slots__ = ("_alpha", "_beta", "_damping", "_level", "_seen", "_trend", "_variance", "deviation")

    def __init__(self, alpha: float = 0.7, beta: float = 0.3, damping: float = 0.8) -> None:
        self._alpha = alpha
        self._beta = beta
        self._damping = damping
        self._level = 0.0
        self._trend = 0.0
        self._seen = 0
        self._variance = 0.0
        self.deviation = 0.0

    def update(self, value: float) -> None:
        self._seen += 1
        if self._seen == 1:
            self._level = value
            return
        error = value - self.predict()
        before = self._level
        self._level = self.predict() + self._alpha * error
        self._trend = self._beta * (self._level - before) + (1.0 - self._beta) * self._damping * self._trend
        # The first jump tells of a change, not of noise.
        self._variance += 0.2 * (min(error * error, 4.0 * self._variance + 1.0) - self._variance)
        self.deviation = sqrt(self._variance)

    def predict(self) -> float:
        return max(0.0, self._level + self._damping * self._trend)


PREDICTORS: dict[str, Callable[[], Predictor]] = {"last": LastValue, "ewma": Ewma, "holt": Holt}
