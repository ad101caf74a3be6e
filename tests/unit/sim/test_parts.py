"""Links, servers and sources."""

from itertools import repeat

import pytest

from tidegate.sim import Link, Pace, Server, Simulation, Source


def test_a_link_takes_its_bandwidth_then_its_delay() -> None:
    sim = Simulation()
    link = Link(sim, "a", delay=0.5, bandwidth=100.0)
    seen: list[float] = []
    for _ in range(3):
        assert link.send(50, lambda: seen.append(sim.now))
    sim.run()
    assert seen == pytest.approx([1.0, 1.5, 2.0])
    assert link.bytes_sent == 150


def test_jitter_delays_and_does_not_reorder() -> None:
    sim = Simulation(3)
    link = Link(sim, "a", jitter=1.0)
    seen: list[tuple[float, int]] = []

    def send(number: int) -> None:
        link.send(1, lambda: seen.append((sim.now, number)))

    for number in range(50):
        sim.at(number * 0.1, lambda number=number: send(number))
    sim.run()
    assert [number for _, number in seen] == list(range(50))
    assert all(0.0 <= time - number * 0.1 <= 1.0 for time, number in seen)
    assert len({time for time, _ in seen}) > 10


def test_a_link_loses_its_share_and_says_so() -> None:
    sim = Simulation(1)
    link = Link(sim, "a", loss=0.25)
    seen: list[int] = []
    arrived = sum(link.send(1, lambda: seen.append(1)) for _ in range(4000))
    sim.run()
    assert len(seen) == arrived == 4000 - link.lost
    assert link.lost == pytest.approx(1000, abs=120)
    with pytest.raises(ValueError):
        Link(sim, "b", loss=1.5)


def test_a_server_takes_the_smallest_key_and_does_not_interrupt_itself() -> None:
    sim = Simulation()
    done: list[tuple[str, float]] = []
    server: Server[str] = Server(
        sim,
        service=lambda item: 1.0,
        done=lambda item: done.append((item, sim.now)),
        key=lambda item: float(item[0]),
    )
    sim.at(0.0, lambda: server.submit("9 first"))
    for item in ("5 b", "1 c", "5 a"):
        sim.at(0.5, lambda item=item: server.submit(item))
    sim.run()
    assert done == [("9 first", 1.0), ("1 c", 2.0), ("5 b", 3.0), ("5 a", 4.0)]
    assert (server.served, server.busy_seconds, len(server)) == (4, 4.0, 0)


def test_what_arrives_at_one_moment_is_chosen_from_together() -> None:
    sim = Simulation()
    done: list[str] = []
    server: Server[str] = Server(
        sim, service=lambda item: 1.0, done=done.append, key=lambda item: float(item)
    )
    for item in "312":
        sim.at(1.0, lambda item=item: server.submit(item))
    sim.run()
    assert done == ["1", "2", "3"]


def test_several_workers_serve_at_once() -> None:
    sim = Simulation()
    ended: list[float] = []
    server: Server[int] = Server(
        sim, service=lambda item: 1.0, done=lambda item: ended.append(sim.now), workers=2
    )
    for item in range(5):
        server.submit(item)
    sim.run()
    assert ended == [1.0, 1.0, 2.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (Pace.OPEN, [1.0, 2.0, 3.0, 4.0]),
        (Pace.PATIENT, [1.0, 3.5, 6.0, 8.5]),  # accepted after 2.5 s: the interval is over by then
        (Pace.BLOCKED, [1.0, 4.5, 8.0, 11.5]),
    ],
)
def test_a_source_goes_on_as_its_pace_says(pace: Pace, expected: list[float]) -> None:
    sim = Simulation()
    seen: list[float] = []

    def send(number: int) -> None:
        seen.append(sim.now)
        sim.after(2.5, source.accepted)

    source = Source(sim, repeat(1.0, 4), send, pace=pace)
    sim.run()
    assert seen == expected
    assert source.sent == 4


def test_a_patient_source_whose_messages_are_taken_at_once_keeps_its_clock() -> None:
    sim = Simulation()
    seen: list[float] = []

    def send(number: int) -> None:
        seen.append(sim.now)
        source.accepted()

    source = Source(sim, repeat(1.0, 3), send, pace=Pace.PATIENT, start=0.5)
    sim.run()
    assert seen == [1.5, 2.5, 3.5]
