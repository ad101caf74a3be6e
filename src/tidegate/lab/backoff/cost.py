"""E1.2: what back-off costs the broker. Spec 1 (c), Fig 5 and 6 of the paper.

The claim: at most 3.53 % of CPU with back-off, 2.53 % without; memory about equal. The paper watched with jconsole,
which sees JVM processes only, so its numbers may be the clients'. Here the processor time of the broker's process is
read from the scheduler, and its resident set, at two loads: thirty publishers at 1 and at 1000 messages a second each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from tidegate.lab.backoff import cost_page
from tidegate.lab.brokers import MOSQUITTO, BrokerProcess
from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Context, Experiment, Part
from tidegate.lab.statistics import summarise_all
from tidegate.load.usage import memory

PUBLISHERS = 30
# `off` must be without priority, too: a broker that orders by rate learns rates, which is most of the adaptive policy.
BROKERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Mosquitto": (MOSQUITTO, ()),
    "off": ("tidegate", ("backoff.policy=off", "priority.policy=off")),
    "paper": ("tidegate", ("backoff.policy=paper", "priority.policy=off")),
    "adaptive": ("tidegate", ("backoff.policy=adaptive", "priority.policy=ageing")),
}
# The published rule holds half of all messages of any real publisher, as no clock is exact; a broker that holds them
# has nothing to do, and would look cheap. With this margin it judges every message and holds none.
JUDGE_ONLY = "backoff.paper_margin=1000000"
LIGHT, HEAVY = 1.0, 1000.0  # messages a second and publisher


def _bench(broker: BrokerProcess, rate: float, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidegate", "bench", "trickle", "--port", str(broker.port)]
    command += ["--pid", str(broker.pid), "--publishers", str(PUBLISHERS), "--subscribers", str(PUBLISHERS)]
    command += ["--rate", str(rate), "--seconds", str(seconds), "--warmup", "1", "--json", "-"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _measure(brokers: dict[str, BrokerProcess], rate: float, seconds: float) -> dict[str, dict[str, Any]]:
    """The same load on each of these brokers at once."""
    running = {name: _bench(broker, rate, seconds) for name, broker in brokers.items()}
    found = {}
    try:
        for name, process in running.items():
            text, _ = process.communicate(timeout=seconds + 60.0)
            try:
                found[name] = _values(json.loads(text), brokers[name])
            except ValueError:
                raise LabError(f"the load on {name} ended with status {process.returncode}") from None
    finally:
        for process in running.values():
            if process.poll() is None:
                process.terminate()
                process.wait(5)
    return found


def _values(result: dict[str, Any], broker: BrokerProcess) -> dict[str, Any]:
    return {
        "cpu_share": result["broker_cpu_share"],
        "cpu_us": result["broker_cpu_us_per_message"],
        "rss_bytes": memory(broker.pid).rss_bytes,
        "messages_per_second": result["messages_per_second"],
        "lost": result["drops"],
        "p50_ms": result["latency_p50_ms"],
        "p99_ms": result["latency_p99_ms"],
        "others": result["broker_wait_share"],
    }


def _start(stack: ExitStack, *, is_judge_only: bool) -> dict[str, BrokerProcess]:
    extra = {"paper": (JUDGE_ONLY,)} if is_judge_only else {}
    return {
        name: stack.enter_context(BrokerProcess(name=program, settings=(*settings, *extra.get(name, ()))))
        for name, (program, settings) in BROKERS.items()
    }


def run(context: Context) -> dict[str, Any]:
    light_seconds = 4.0 if context.is_quick else 240.0
    rounds, heavy_seconds = (1, 2.0) if context.is_quick else (6, 4.0)
    values: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        # All at once: the load is light, and what the machine does meanwhile it does to all of them.
        brokers = _start(stack, is_judge_only=False)
        context.progress.start(f"e1.2 light load, {light_seconds:g} s", 1)
        for name, found in _measure(brokers, LIGHT, light_seconds).items():
            values["light", name] = [found]
        context.progress.step()
    with ExitStack() as stack:
        brokers = _start(stack, is_judge_only=True)
        turns = [(turn, name) for turn in range(rounds) for name in brokers]
        for turn, name in context.follow("e1.2 heavy load", turns):
            began = time.monotonic()
            found = _measure({name: brokers[name]}, HEAVY, heavy_seconds)[name]
            values.setdefault(("heavy", name), []).append(
                {"turn": turn, "took": round(time.monotonic() - began, 1), **found}
            )
    for (load, _), found_values in values.items():
        # Turn by turn against the broker without back-off: the machine's moods are common to both.
        for found, off in zip(found_values, values[load, "off"], strict=True):
            found["cpu_more"] = found["cpu_share"] - off["cpu_share"]
    return {
        "parameters": {
            "publishers": f"{PUBLISHERS}, each to its own subscriber, QoS 0, 64 bytes",
            "light": f"{LIGHT:g} msg/s each for {light_seconds:g} s, all brokers at once",
            "heavy": f"{HEAVY:g} msg/s each for {heavy_seconds:g} s, {rounds} rounds, one broker after the other",
            "brokers": {name: " ".join(settings) or "defaults" for name, (_, settings) in BROKERS.items()},
            "heavy, paper": JUDGE_ONLY + ": it judges every message and holds none",
        },
        "summary": [
            {"load": load, "broker": name, **summarise_all(found, without=("turn", "took"))}
            for (load, name), found in values.items()
        ],
        "seeds": [{"load": load, "broker": name, "values": found} for (load, name), found in values.items()],
    }


EXPERIMENT = Experiment(
    name="e1.2-cost",
    title="Cost of back-off",
    question="How much processor time and memory does the broker use with back-off, and without?",
    run=run,
    present=cost_page.present,
    parts=(Part.REAL,),
)
