"""A campaign: one attack after the other on the same node, for as long as wanted, and what is to be said of it.

Each round is one stream by one way into the node, by one, ten or a hundred connections, all together no faster than the
rate. A witness pings all the while. Now and then the operator and a client with a session come and do something. At the
end the node is killed and started again with what the attacks left in its data folder.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.attack import attacker, streams
from bench.attack.attacker import Orders
from bench.attack.victim import KINDS, WEBSOCKETS, Victim
from bench.attack.witness import Witness
from tidegate.accounts.passwords import hash_password
from tidegate.mqtt import Property, Publish
from tidegate.testing.raw import RawClient

ROUND: Final = 3.0  # seconds
WINDOW: Final = 10.0  # seconds
USUAL: Final = 0.1  # seconds that the worst ping of a window may take
USUAL_SHARE: Final = 0.95  # of the windows
WORST: Final = 0.5  # seconds that any ping may take
OVER: Final = 1.1  # of the memory bound
VISITS: Final = 20.0  # seconds between two visits of the operator
TICK: Final = 0.01
RIGHTS: Final = f"user mallory\ntopic readwrite {streams.HOME}/#\n\nuser known\ntopic readwrite own/#\n"
CONNECTIONS: Final = (1, 10, 100)


@dataclass(kw_only=True)
class Round:
    """What was sent in one, and what the others noticed while it lasted."""

    number: int
    stream: str
    way: str
    connections: int
    reads: bool
    began: float
    ended: float = 0.0
    sent_bytes: int = 0
    dialled: int = 0
    refused: int = 0
    resident_bytes: int = 0
    worst_ping: float = 0.0


@dataclass(kw_only=True)
class Report:
    """Times in seconds. `broken` says which promises were not kept."""

    seed: int
    rate: float
    bound_bytes: int
    seconds: float = 0.0
    rounds: list[Round] = field(default_factory=list)
    windows: list[float] = field(default_factory=list)  # the worst ping of each
    worst_ping: float = 0.0
    usual_share: float = 0.0
    peak_share: float = 0.0
    peak_share_after_restart: float = 0.0
    host_stall: float = 0.0  # the longest that this machine left a process waiting that only sleeps
    visits: int = 0
    failed_visits: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


class HostMeter:
    """How late this machine wakes a thread that only sleeps: stalls that are not the node's."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            time.sleep(TICK)
            self.worst = max(self.worst, time.monotonic() - began - TICK)


def judge(report: Report, pings: list[tuple[float, float]]) -> None:
    """Fill in what follows from the pings, and which promises were broken."""
    began = pings[0][0]
    worst: dict[int, float] = {}
    for when, seconds in pings:
        number = int((when - began) / WINDOW)
        worst[number] = max(worst.get(number, 0.0), seconds)
    for each in report.rounds:
        each.worst_ping = max(
            (seconds for when, seconds in pings if when < each.ended and when + seconds > each.began), default=0.0
        )
    report.windows = [worst.get(number, 0.0) for number in range(max(worst) + 1)]
    report.worst_ping = max(report.windows)
    report.usual_share = sum(each <= USUAL for each in report.windows) / len(report.windows)
    if report.usual_share < USUAL_SHARE:
        share = f"{report.usual_share:.0%}"
        report.broken.append(f"only in {share} of the windows no ping took over {USUAL * 1e3:.0f} ms")
    if report.worst_ping > WORST:
        report.broken.append(f"a ping took {report.worst_ping * 1e3:.0f} ms")
    for name, share_of_bound in (("", report.peak_share), (" after the restart", report.peak_share_after_restart)):
        if share_of_bound > OVER:
            report.broken.append(f"memory{name} was {share_of_bound:.2f} of its bound")
    report.broken += report.failed_visits


def write_accounts(folder: Path) -> tuple[str, ...]:
    """The attacker has an account, as have a client to be kept well and one whose password takes long to check."""
    cheap = {"time_cost": 1, "memory_cost_kib": 8, "parallelism": 1}
    costly = {"time_cost": 3, "memory_cost_kib": 65_536, "parallelism": 4}
    given = {"mallory": cheap, "known": cheap, "witness": cheap, "costly": costly}
    accounts, rights = folder / "accounts", folder / "rights"
    accounts.touch(mode=0o600)
    accounts.write_text("".join(f"{name}:{hash_password(name.encode(), **cost)}\n" for name, cost in given.items()))
    rights.write_text(RIGHTS)
    return f"accounts.password_file={accounts}", f"accounts.rights_file={rights}"


def _operator_acts(victim: Victim) -> None:
    with victim.operator() as operator:
        operator.subscribe("$SYS/tide/pulse")
        operator.take(Publish, topic="$SYS/tide/pulse")
        answer = operator.publish("$tide/control/end", b'{"client":"nobody-of-this-name"}', qos=1)
        assert answer is not None and answer.reason_code
        operator.publish("operator/note", b"x", qos=1)


def _known_comes(victim: Victim) -> None:
    """A client with a session gets in, whatever the state of the node."""
    with RawClient(victim.port, timeout=10.0) as client:
        connack = client.connect(
            "known", username="known", password=b"known", clean_start=False,
            properties={Property.SESSION_EXPIRY_INTERVAL: 3_600},
        )  # fmt: skip
        assert not connack.reason_code, connack
        client.publish("own/x", b"x")
        client.barrier()


def _visit(victim: Victim, report: Report, when: str) -> None:
    for name, act in (("the operator", _operator_acts), ("a client with a session", _known_comes)):
        report.visits += 1
        try:
            act(victim)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            report.failed_visits.append(f"{when} {name} did not get through: {type(error).__name__}: {error}")


def plan(seed: int) -> Iterator[tuple[str, str, int, bool, int]]:
    """Streams, ways, numbers of connections, whether answers are read, and a seed: every stream before any again."""
    chance = random.Random(seed)
    while True:
        names = list(streams.ALL)
        chance.shuffle(names)
        for name in names:
            way = chance.choice(WEBSOCKETS if name in streams.FRAMES else KINDS)
            yield name, way, chance.choice(CONNECTIONS), chance.random() < 0.9, chance.randrange(1 << 30)


def _stop_for(victim: Victim, seconds: float) -> None:
    """The control: a node that does nothing for a while."""
    os.kill(victim.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(victim.pid, signal.SIGCONT)


def run(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    rate: float,
    bound_bytes: int,
    only: tuple[str, ...] = (),
    stall: float = 0.0,
    say: Callable[[str], None],
) -> Report:
    """`stall` is the control: once the node stops for so long, which must be noticed."""
    report = Report(seed=seed, rate=rate, bound_bytes=bound_bytes)
    meter = HostMeter()
    settings = (*write_accounts(folder), f"limits.max_account_bytes={bound_bytes // 2}")
    with Victim(folder, bound_bytes, *settings, data=folder / "data") as victim:
        _visit(victim, report, "before the attacks")
        with Witness(victim.port, "witness") as witness:
            _rounds(victim, report, seconds=seconds, seed=seed, rate=rate, only=only, stall=stall, say=say)
            report.peak_share = victim.peak_share
            witness.end()
        victim.kill()
        victim.start()
        _visit(victim, report, "after the restart")
        report.peak_share_after_restart = victim.peak_share
    meter.stop()
    report.host_stall = meter.worst
    judge(report, witness.pings)
    return report


def _rounds(
    victim: Victim,
    report: Report,
    *,
    seconds: float,
    seed: int,
    rate: float,
    only: tuple[str, ...],
    stall: float,
    say: Callable[[str], None],
) -> None:
    began = time.monotonic()
    visit_at = began + VISITS
    for name, way, connections, reads, part_seed in plan(seed):
        if only and name not in only:
            continue
        now = time.monotonic()
        left = seconds - (now - began)
        if left <= 0:
            break
        if now >= visit_at:
            visit_at = now + VISITS
            _visit(victim, report, f"in second {now - began:.0f}")
        each = Round(
            number=len(report.rounds), stream=name, way=way, connections=connections, reads=reads, began=now
        )
        report.rounds.append(each)
        if stall:
            _stop_for(victim, stall)
            stall = 0.0
        done = attacker.run(
            Orders(
                way=asdict(victim.ways[way]) | {"path": str(victim.ways[way].path or "")},
                stream=name, seed=part_seed, connections=connections, seconds=min(ROUND, left), rate=rate, reads=reads,
            )
        )  # fmt: skip
        if not victim.is_running:
            report.broken.append(f"the node ended in round {each.number}: {victim.logged()[-2_000:]}")
            break
        each.ended = time.monotonic()
        each.sent_bytes, each.dialled, each.refused = done.sent_bytes, done.dialled, done.refused
        each.resident_bytes = victim.resident_bytes()
        say(
            f"{each.ended - began:6.0f} s  {name:24} {way:8} x{connections:<4} {done.sent_bytes / 1e6:6.1f} MB"
            f"  {done.dialled:5} in {done.refused:5} out   {each.resident_bytes / 1e6:5.0f} MB resident"
        )
    report.seconds = time.monotonic() - began


def table(report: Report) -> str:
    """By stream: how much was sent, and the worst that others noticed meanwhile."""
    rows: dict[str, dict[str, Any]] = {}
    for each in report.rounds:
        row = rows.setdefault(each.stream, {"rounds": 0, "sent": 0, "worst": 0.0, "resident": 0})
        row["rounds"] += 1
        row["sent"] += each.sent_bytes
        row["worst"] = max(row["worst"], each.worst_ping)
        row["resident"] = max(row["resident"], each.resident_bytes)
    lines = [f"{'stream':24} {'rounds':>6} {'sent MB':>8} {'worst ping ms':>13} {'resident MB':>11}"]
    for name, row in sorted(rows.items(), key=lambda item: -float(item[1]["worst"])):
        lines.append(
            f"{name:24} {row['rounds']:6} {row['sent'] / 1e6:8.0f} {row['worst'] * 1e3:13.0f} "
            f"{row['resident'] / 1e6:11.0f}"
        )
    usual, worst, host = USUAL * 1e3, report.worst_ping * 1e3, report.host_stall * 1e3
    lines.append("")
    lines.append(f"windows of {WINDOW:.0f} s without a ping over {usual:.0f} ms: {report.usual_share:.1%}")
    lines.append(f"worst ping: {worst:.0f} ms (the machine itself stalled for up to {host:.0f} ms)")
    lines.append(f"memory: {report.peak_share:.2f} of the bound, {report.peak_share_after_restart:.2f} after a restart")
    lines.append(f"visits of operator and client: {report.visits}, not let through: {len(report.failed_visits)}")
    return "\n".join(lines)
