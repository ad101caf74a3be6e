"""Attack a node for as long as wanted: `python -m bench.attack --minutes 30 --seed 1`.

A report as JSON goes to standard output (or a file), progress and a table to standard error; the exit status says
whether all promises were kept.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.attack import campaign, streams


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="of all choices; the same seed sends the same streams")
    parser.add_argument("--rate", type=float, default=10e6, help="bytes a second of all attackers together")
    parser.add_argument("--memory", type=int, default=400_000_000, help="memory bound of the node, bytes")
    parser.add_argument("--only", action="append", default=[], choices=sorted(streams.ALL))
    parser.add_argument(
        "--stall", type=float, default=0.0, help="the control: stop the node once for so many seconds; must fail"
    )
    parser.add_argument("--json", type=Path, help="write the report to this file")
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="tidegate-attack-") as folder:
        report = campaign.run(
            Path(folder), seconds=options.minutes * 60, seed=seed, rate=options.rate, bound_bytes=options.memory,
            only=tuple(options.only), stall=options.stall, say=say,
        )  # fmt: skip
    say(campaign.table(report))
    text = json.dumps(asdict(report), indent=1)
    if options.json is not None:
        options.json.write_text(text + "\n")
    else:
        print(text)
    for each in report.broken:
        say(f"BROKEN: {each}")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
