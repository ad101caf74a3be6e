"""A flood on real sockets: five publishers at full speed beside 200 sensors that send one QoS 1 message a second.

Our claim, not the paper's: with the gate on, the sensors' p99 during the flood is at most twice their p99 without any
flood; none of their messages is lost; the flooders stay connected and their PINGREQ is answered. Each run measures the
quiet time and the flood against one broker, one after the other, from the first moment of the flood on.

Sensors and flooders are different machines in the field. Here they share one, so the broker has a processor of its own,
and on the other one the sensors' process comes before the flooders': else a sensor's latency would be the time that a
flooder keeps it from running. Messages that were under way while the machine itself stood still are left out
(`lab/stalls.py`), before the flood and in it. Without the right to such priorities the runs go on without them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from tidegate.lab.backoff.flood_clients import KEEP_ALIVE
from tidegate.lab.brokers import MOSQUITTO, BrokerProcess
from tidegate.lab.experiment import (
    Claim,
    Context,
    Experiment,
    Figure,
    Part,
    Presentation,
    Table,
    Verdict,
)
from tidegate.lab.stalls import StallWatch
from tidegate.lab.statistics import percentile, show, summarise
from tidegate.load.usage import cpu_seconds, steal_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SENSORS = 200
FLOODERS = 5
WARM_UP = 2.0  # seconds; everybody has just connected
LIMIT = 2.0
GATE_OFF = "tidegate, gate off"
OFF_SEEDS = 3  # a few are enough to see what the gate is for
BROKERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tidegate": ("tidegate", ()),
    GATE_OFF: ("tidegate", ("backoff.policy=off", "priority.policy=off")),
    "mosquitto": (MOSQUITTO, ()),
}
CPUS = sorted(os.sched_getaffinity(0))
BROKER_CPU, CLIENTS_CPU = CPUS[:2] if len(CPUS) > 1 else (None, None)
MAIN = "import sys; from tidegate.lab.backoff.flood_clients import main; main(sys.argv[1:])"


def measure(
    name: str, settings: tuple[str, ...], qos: int, quiet: float, flood: float, seed: int
) -> dict[str, Any]:
    """One broker: quiet for so many seconds, then the flood."""
    with BrokerProcess(name=name, settings=settings, cpu=BROKER_CPU) as broker, StallWatch() as watch:
        port = str(broker.port)
        before, stolen, began = cpu_seconds(broker.pid), steal_seconds(), time.monotonic()
        sensing = _start("sensors", port, SENSORS, WARM_UP + quiet + flood, seed)
        flooding: subprocess.Popen[str] | None = None
        try:
            assert sensing.stdout is not None
            sensing.stdout.readline()
            try:
                sensing.wait(WARM_UP + quiet)
            except subprocess.TimeoutExpired:
                pass
            flooding = _start("flooders", port, FLOODERS, flood, qos)
            flooded = json.loads(flooding.communicate(timeout=flood + 60)[0])
            sensed = json.loads(sensing.communicate(timeout=60)[0])
        finally:
            for process in (sensing, flooding):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait()
        cpu = cpu_seconds(broker.pid) - before
        steal = (steal_seconds() - stolen) / (time.monotonic() - began)
    every = sensed.pop("latencies")
    first = sensed.pop("began")
    latencies = [(at, ms) for at, ms in every if not watch.stalls.touch(first + at, first + at + ms / 1e3)]
    calm = [ms for at, ms in latencies if WARM_UP <= at < WARM_UP + quiet]
    rough = [ms for at, ms in latencies if at >= WARM_UP + quiet]
    return {
        "seed": seed,
        **sensed,
        "quiet_p50": percentile(calm, 0.5),
        "quiet_p99": percentile(calm, 0.99),
        "flood_p50": percentile(rough, 0.5),
        "flood_p99": percentile(rough, 0.99),
        "flood_worst": max(rough),
        "ratio": percentile(rough, 0.99) / percentile(calm, 0.99),
        "lost": sensed["sent"] - sensed["received"],
        "flooders_open": flooded["open"],
        "flooders_sent": flooded["sent"],
        "flooders_pings": flooded["pings"],
        "flooders_answers": flooded["answers"],
        "flooders_worst_answer": flooded["worst_answer"],
        "cpu_seconds": cpu,
        "steal": steal,
        "left_out": 1.0 - len(latencies) / len(every),
        "trace": _trace(latencies),
    }


def _start(role: str, port: str, count: int, seconds: float, option: int) -> subprocess.Popen[str]:
    cpu = -1 if CLIENTS_CPU is None else CLIENTS_CPU
    command = [sys.executable, "-c", MAIN, role, port, str(count), str(seconds), str(option), str(cpu)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _trace(latencies: list[tuple[float, float]]) -> list[float]:
    """The worst latency of each half second, for the figure."""
    worst: dict[int, float] = {}
    for at, ms in latencies:
        worst[int(at * 2)] = max(ms, worst.get(int(at * 2), 0.0))
    return [round(worst.get(index, 0.0), 2) for index in range(max(worst) + 1)]


def run(context: Context) -> dict[str, Any]:
    seeds = context.number_of_seeds(10, 1)
    quiet, flood = (4.0, 6.0) if context.is_quick else (5.0, 10.0)
    cases = [
        (qos, seed, name)
        for qos in (0, 1)
        for seed in range(seeds)
        for name in BROKERS
        if name != GATE_OFF or seed < OFF_SEEDS
    ]
    values: list[dict[str, Any]] = []
    for qos, seed, name in context.follow("flood", cases):
        found = measure(*BROKERS[name], qos, quiet, flood, seed)
        values.append({"broker": name, "flood_qos": qos, **found})
    summary = []
    for qos in (0, 1):
        for name in BROKERS:
            rows = [value for value in values if value["broker"] == name and value["flood_qos"] == qos]
            numbers = {
                key: [row[key] for row in rows] for key in rows[0] if isinstance(rows[0][key], int | float)
            }
            summary.append(
                {
                    "broker": name,
                    "flood_qos": qos,
                    "median_ratio": median(row["ratio"] for row in rows),
                    **{
                        key: summarise(found)
                        for key, found in numbers.items()
                        if key not in ("seed", "flood_qos")
                    },
                }
            )
    return {
        "parameters": {
            "sensors": f"{SENSORS} clients, one QoS 1 message of 12 bytes a second each, one subscriber",
            "flooders": f"{FLOODERS} publishers, 64-byte messages as fast as the socket takes them, one subscriber; "
            f"QoS 1: at most 1000 unacknowledged; keep-alive {KEEP_ALIVE} s",
            "seconds": {"warm-up": WARM_UP, "quiet": quiet, "flood": flood},
            "seeds": seeds,
            "processors": "broker and clients have one each, sensors before flooders"
            if CLIENTS_CPU is not None
            else "one for all",
        },
        "summary": summary,
        "seeds": values,
    }


def present(report: dict[str, Any]) -> Presentation:
    rows = {(row["broker"], row["flood_qos"]): row for row in report["summary"]}
    claims = []
    for qos in (0, 1):
        ours, mosquitto = rows["tidegate", qos], rows["mosquitto", qos]
        is_kept = ours["median_ratio"] <= LIMIT and not ours["lost"]["max"]
        is_kept = is_kept and ours["flooders_open"]["min"] == FLOODERS
        is_kept = is_kept and ours["flooders_worst_answer"]["max"] < KEEP_ALIVE
        claims.append(
            Claim(
                text=f"QoS {qos} flood: the sensors' p99 is at most {LIMIT:g} times that without a flood, none lost, "
                "the flooders stay connected and are answered",
                paper="–",
                ours=f"{ours['median_ratio']:.2f} times (median), {ours['lost']['max']:.0f} lost, longest PINGRESP "
                f"{ours['flooders_worst_answer']['max']:.1f} s; Mosquitto {mosquitto['median_ratio']:.2f} times",
                verdict=Verdict.HOLDS if is_kept else Verdict.FAILS,
                short=f"Flood of 5 publishers at QoS {qos}: sensors' p99 over that of a quiet node",
                is_headline=qos == 1,
            )
        )
    head = [
        "flood",
        "broker",
        "runs",
        "quiet p99, ms",
        "flood p50, ms",
        "flood p99, ms",
        "worst, ms",
        "ratio, median",
        "lost",
    ]
    head += ["flooders sent", "PINGRESP worst, s", "CPU, s", "stolen", "left out"]
    table = Table(
        title="Sensors beside a flood",
        head=head,
        rows=[
            [
                f"QoS {qos}",
                name,
                f"{row['ratio']['n']}",
                show(row["quiet_p99"]),
                show(row["flood_p50"]),
                show(row["flood_p99"]),
                f"{row['flood_worst']['max']:.0f}",
                f"{row['median_ratio']:.2f}",
                f"{row['lost']['max']:.0f}",
                f"{row['flooders_sent']['mean']:,.0f}",
                f"{row['flooders_worst_answer']['max']:.2f}",
                show(row["cpu_seconds"]),
                show(row["steal"], "{:.1f} %", 100.0),
                show(row.get("left_out"), "{:.1f} %", 100.0),
            ]
            for (name, qos), row in rows.items()
        ],
        note="Ratios are medians of the runs. Messages that were under way while the machine stood still are left out, "
        "of all brokers and phases alike. The flood counts from its first moment, also before the node has noticed it. "
        "Of what a QoS 0 flooder sends, a held one's backlog is dropped and counted, so that its PINGREQ is "
        "answered.",
    )
    return Presentation(claims=claims, tables=[table], figures=[_figure(report, qos) for qos in (0, 1)])


def _figure(report: dict[str, Any], qos: int) -> Figure:
    begin = WARM_UP + report["parameters"]["seconds"]["quiet"]

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for name in BROKERS:
            traces = [
                row["trace"] for row in report["seeds"] if row["broker"] == name and row["flood_qos"] == qos
            ]
            middle = [median(column) for column in zip(*traces, strict=False)]
            axes.plot([index / 2 for index in range(len(middle))], middle, label=name)
        axes.axvline(begin, color="grey", linestyle=":", label="the flood begins")
        axes.set_yscale("log")
        axes.set_xlabel("seconds")
        axes.set_ylabel("worst latency of a sensor's message in half a second, ms")
        axes.legend()

    return Figure(
        name=f"qos{qos}",
        text=f"Worst latency of sensors' messages over time, before and in a QoS {qos} flood, three brokers",
        draw=draw,
    )


EXPERIMENT = Experiment(
    name="flood",
    title="A flood beside sensors",
    question="What do 200 sensors notice when five publishers send as fast as they can?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
