"""Long proofs that the broker stays itself under hostile load: `python -m bench.soak slow-readers|reconnect|members`.

Data goes to standard output as JSON, progress to standard error; the exit status says whether all bounds were kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.soak import members, reconnect, slow_readers

RATIO = 1.5  # of the healthy subscribers' p99 with the slow ones to that without
BACK_SECONDS = 60.0
PAIR_P99_MS = 100.0
KILLING_RATIO = 2.0  # of the other members' p99 while one is killed to that without


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_slow_readers(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    found = slow_readers.run(
        qos=options.qos,
        slow=options.slow,
        rounds=options.rounds,
        seconds=options.seconds,
        long_seconds=options.long_seconds,
        max_memory=options.max_memory,
        settings=tuple(options.set),
        say=say,
    )
    say(
        f"p99 with slow readers is {found.ratio:.2f} times that without; peak {found.peak_bytes / 1e6:.0f} MB"
    )
    broken = []
    # At QoS 1 a hundred more subscribers are a hundred more deliveries: the ratio is reported, not judged.
    if not options.qos and found.ratio > RATIO:
        broken.append(f"the ratio of the p99s is over {RATIO}")
    if found.peak_bytes > found.max_memory_bytes:
        broken.append(f"memory went over the bound of {found.max_memory_bytes} bytes")
    return asdict(found), broken


def run_reconnect(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    found = reconnect.run(clients=options.clients, settings=tuple(options.set), attempts=3, say=say)
    broken = []
    for storm in found.storms:
        if storm.up < storm.clients:
            broken.append(f"{storm.kind}: {storm.clients - storm.up} clients did not come back")
        if storm.seconds > BACK_SECONDS:
            broken.append(f"{storm.kind}: the last client came back after {storm.seconds:.0f} s")
        if storm.during.p99_ms > PAIR_P99_MS:
            broken.append(f"{storm.kind}: the pair's p99 was {storm.during.p99_ms:.0f} ms")
    return asdict(found), broken


def run_members(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    found = members.run(
        kills=options.kills,
        rounds=options.rounds,
        rate=options.rate,
        data=options.data,
        settings=tuple(options.set),
        say=say,
    )
    say(
        f"{found.kills} kills: {found.lost} of {found.acknowledged} acknowledged messages lost, "
        f"{found.repeated} done twice, {found.moved} moved; the others' p99 {found.quiet_p99_ms:.2f} ms without "
        f"kills, {found.killing_p99_ms:.2f} ms with, ratio {found.ratio:.2f}"
    )
    broken = []
    if found.lost:
        broken.append(f"{found.lost} messages were lost")
    if found.ratio > KILLING_RATIO:
        broken.append(f"the ratio of the p99s is over {KILLING_RATIO}")
    return asdict(found), broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__)
    commands = parser.add_subparsers(required=True)
    slow = commands.add_parser("slow-readers", help="subscribers that never read beside healthy ones")
    slow.add_argument("--qos", type=int, choices=(0, 1), default=0)
    slow.add_argument("--slow", type=int, default=100)
    slow.add_argument("--rounds", type=int, default=6)
    slow.add_argument("--seconds", type=float, default=10.0, help="of each alternating phase")
    slow.add_argument(
        "--long-seconds", type=float, default=120.0, help="of the last phase, with slow readers"
    )
    slow.add_argument("--max-memory", type=int, default=400_000_000)
    slow.set_defaults(run=run_slow_readers)
    storm = commands.add_parser("reconnect", help="all clients come back at once")
    storm.add_argument("--clients", type=int, default=10_000)
    storm.set_defaults(run=run_reconnect)
    crew = commands.add_parser("members", help="one of four members of a group is killed again and again")
    crew.add_argument("--kills", type=int, default=50)
    crew.add_argument("--rounds", type=int, default=5, help="phases without kills and with a part of them")
    crew.add_argument("--rate", type=float, default=members.RATE, help="messages a second")
    crew.add_argument("--data", type=Path, help="keep sessions in this folder; default: in memory")
    crew.set_defaults(run=run_members)
    for each in (slow, storm, crew):
        each.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a broker setting")
    options = parser.parse_args()
    found, broken = options.run(options)
    print(json.dumps(found, indent=1))
    for line in broken:
        say(f"not kept: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
