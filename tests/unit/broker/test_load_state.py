"""The load state follows how long a message waits for its turn: up at once, down after a while of calm."""

import pytest

from tidegate.broker.flow_settings import LoadLimits
from tidegate.broker.load_state import LoadMeter
from tidegate.flow.backoff import Load

TICK = 0.25  # seconds between two looks
CALM = 2.0
LIMITS = LoadLimits(high_wait=0.001, overload_wait=0.05, calm=CALM)


class Node:
    """A loop in virtual time: turns of given lengths, and a look at the state four times a second."""

    def __init__(self, limits: LoadLimits = LIMITS) -> None:
        self.now = 100.0
        self.meter = LoadMeter(limits, self.now)
        self.share = 0.0
        self.history: list[tuple[float, Load]] = [(self.now, Load.LOW)]
        self._next_tick = self.now + TICK

    def work(self, length: float, every: float, seconds: float) -> None:
        """A turn of `length` begins every so many seconds."""
        end = self.now + seconds - 1e-9
        while self.now < end:
            self._pass(length)
            if self.meter.turn(self.now, length):
                self._look()
            self._pass(every - length)

    def rest(self, seconds: float) -> None:
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        end = self.now + seconds
        while self._next_tick <= end:
            self.now = self._next_tick
            self._next_tick += TICK
            self._look()
        self.now = end

    def _look(self) -> None:
        state = self.meter.update(self.now, self.share)
        if state is not self.history[-1][1]:
            self.history.append((self.now, state))

    @property
    def states(self) -> list[Load]:
        return [state for _, state in self.history]


def test_an_idle_node_is_low() -> None:
    node = Node()
    node.rest(60.0)
    assert node.states == [Load.LOW]
    assert node.meter.wait == 0.0


@pytest.mark.parametrize(
    ("length", "every"), [(0.0001, 0.00011), (0.0005, 0.001), (0.0015, 0.002), (0.004, 0.2)]
)
def test_many_short_turns_are_low_however_busy_the_node_is(length: float, every: float) -> None:
    node = Node()
    node.work(length, every, 5.0)
    assert node.states == [Load.LOW]
    assert node.meter.wait < 0.001


def test_the_wait_is_that_of_a_message_that_arrives_at_a_random_moment() -> None:
    node = Node()
    node.work(0.01, 0.025, 10.0)  # 40 % of the time somebody would wait 5 ms on average
    assert node.meter.wait == pytest.approx(0.4 * 0.005, rel=0.3)


def test_few_long_turns_are_high_before_the_window_ends() -> None:
    node = Node()
    node.work(0.02, 0.021, 0.25)
    when, state = node.history[1]
    assert state is Load.HIGH
    assert when - node.history[0][0] < 0.1


def test_a_single_long_turn_counts_more_than_the_same_time_in_short_ones() -> None:
    short, long = Node(), Node()
    short.work(0.001, 0.0011, 0.2)
    long.work(0.18, 0.2, 0.2)
    assert short.meter.state is Load.LOW
    assert long.meter.state > Load.LOW


def test_turns_of_an_eighth_of_a_second_are_overload() -> None:
    node = Node()
    node.work(0.125, 0.126, 1.0)
    assert node.meter.state is Load.OVERLOAD


def test_a_suspended_machine_is_no_more_than_one_second_of_load() -> None:
    node, other = Node(), Node()
    node.meter.turn(node.now, 86_400.0)
    other.meter.turn(other.now, 1.0)
    for each in (node, other):
        each.rest(TICK)
    assert node.meter.wait == other.meter.wait


@pytest.mark.parametrize(("length", "every"), [(0.02, 0.021), (0.125, 0.126)])
def test_the_state_falls_only_after_the_calm(length: float, every: float) -> None:
    node = Node()
    node.work(length, every, 1.0)
    high = node.meter.state
    assert high > Load.LOW
    ended = node.now
    node.rest(CALM - TICK)
    assert node.meter.state is high
    node.rest(4 * TICK)
    assert node.meter.state is Load.LOW
    fell = node.history[-1][0]
    assert CALM - TICK <= fell - ended <= CALM + 2 * TICK


def test_a_node_that_becomes_idle_all_at_once_is_low_again() -> None:
    """Nothing is measured on an idle node; what was measured last must not stay for ever."""
    node = Node()
    node.work(0.125, 0.126, 0.126)
    node.rest(60.0)
    assert node.states[-1] is Load.LOW
    assert node.meter.wait == 0.0


def test_a_bit_of_load_within_the_calm_begins_it_anew() -> None:
    node = Node()
    node.work(0.02, 0.021, 1.0)
    for _ in range(5):
        node.rest(CALM - 3 * TICK)
        node.work(0.02, 0.021, 0.3)
    assert node.states == [Load.LOW, Load.HIGH]


def test_overload_that_becomes_high_is_high_and_not_low() -> None:
    node = Node()
    node.work(0.125, 0.126, 1.0)
    node.work(0.02, 0.021, CALM + 4 * TICK)
    assert node.meter.state is Load.HIGH
    ended = node.now
    node.rest(CALM + 4 * TICK)
    assert node.states[-3:] == [Load.OVERLOAD, Load.HIGH, Load.LOW]
    assert node.history[-1][0] - ended >= CALM - TICK


def test_one_calm_look_does_not_lower_overload_to_low_while_it_was_high() -> None:
    """From OVERLOAD to LOW takes `calm` seconds below HIGH, not one quiet moment at the right time."""
    meter = LoadMeter(LIMITS, 0.0)
    assert meter.update(0.25, 0.9) is Load.OVERLOAD
    at = 0.25
    while at < 0.25 + CALM - TICK:
        at += TICK
        assert meter.update(at, 0.6) is Load.OVERLOAD
    assert meter.update(at + TICK, 0.0) is Load.HIGH
    assert meter.update(at + 2 * TICK, 0.0) is Load.HIGH
    assert meter.update(at + TICK + CALM, 0.0) is Load.LOW


@pytest.mark.parametrize(
    ("share", "state"),
    [(0.0, Load.LOW), (0.49, Load.LOW), (0.51, Load.HIGH), (0.79, Load.HIGH), (0.81, Load.OVERLOAD)],
)
def test_full_queues_and_memory_raise_it_without_any_turn(share: float, state: Load) -> None:
    node = Node()
    node.share = share
    node.rest(TICK)
    assert node.meter.state is state
    node.share = 0.0
    node.rest(CALM + 2 * TICK)
    assert node.meter.state is Load.LOW


def test_a_limit_of_zero_makes_any_work_high() -> None:
    node = Node(LoadLimits(high_wait=0.0))
    node.rest(1.0)
    assert node.states == [Load.LOW]
    node.work(0.000_01, 0.1, 0.2)
    assert node.states == [Load.LOW, Load.HIGH]
