"""E2.1 and E2.2 for real: brokers in network namespaces at Table V's bandwidths, clients following Table VI.

The paper's constant delays (0.1 s between brokers, 0.2 s to clients) are not made on the wire but taken off the
budgets, as its own rule does: what is left is the time a message may wait (requirement − 0.3 s). Bandwidth counts
MQTT packets, as the paper's rate × size does: headers of TCP/IP are left out by `tc`'s size table. Messages are larger
and rarer than the paper's by `SCALE`.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.cluster.local import NodeProcess
from tidegate.lab.cluster import tables
from tidegate.lab.cluster.namespaces import Network
from tidegate.lab.cluster.real_clients import topic_name
from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Claim, Context, Experiment, Figure, Part, Presentation, Table, Verdict
from tidegate.lab.stalls import StallWatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PORT: Final = 1883
LINK_PORT: Final = 1884
SCALE: Final = 5
"""Messages are so many times larger and rarer than the paper's: the same bits, a fifth of the processor's work, so that
two cores that others use as well are enough. Every rate, depth and threshold of the model scales by it."""
START_SECONDS: Final = 5.0  # until the clients have started
COMMAND_SECONDS: Final = 0.7  # until a command of the operator has started
FIXED_DELAYS: Final = 0.3  # seconds of the paper's path (rule `paper`)
BURST = [str(number) for number in tables.BURST]
# Name: policy, and whether subscribers go to the pinned edges or are placed by the head.
RUNS: Final = {
    "E2.1 paper": ("paper", True),
    "E2.1 deadline": ("deadline", True),
    "E2.2 paper": ("paper", False),
    "E2.2 deadline": ("deadline", False),
}
NEARLY_NONE: Final = 14 * SCALE  # messages: two for each subscriber are being sent, not waiting
CLIENTS: Final = "from tidegate.lab.cluster.real_clients import main; main()"
QUICK: Final = ("E2.1 paper",)
REPEATED: Final = {"E2.1 paper": 3}  # runs; the one in which the machine stood still least is judged


class Times:
    """On the paper's clock the burst is at 30 s; a quick run places faster and ends sooner."""

    def __init__(self, is_quick: bool) -> None:
        self.step = 0.2 if is_quick else 1.0
        self.burst = 8.0 if is_quick else tables.BURST_AT
        self.end = self.burst + (15.0 if is_quick else 36.0)

    def shown(self, t: float) -> float:
        return t - self.burst + tables.BURST_AT


def run_one(policy: str, is_pinned: bool, times: Times, seed: int) -> dict[str, Any]:
    bandwidths: dict[str, float | None] = {"h": tables.HEAD[1], "clients": None}
    bandwidths |= {name: mbit for name, (_, mbit) in tables.TABLE_5.items()}
    with Network(bandwidths) as network, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-lab-")))
        _start_nodes(network, stack, folder, policy)
        _balance(network, "off")
        head = f"{network.addresses['h']}:{PORT}"
        began = time.monotonic() + START_SECONDS
        layout = tables.pinned()
        allowed_at = began + times.burst + tables.ALLOWED_FROM - tables.BURST_AT
        common = {"began": began, "until": began + times.end, "seed": seed}
        topics = {
            number: {
                "publishers": topic.publishers,
                "subscribers": topic.subscribers,
                "size": round(topic.size_bytes) * SCALE,
                "rate": topic.rate / SCALE,
                "limit": topic.latency - FIXED_DELAYS,
                "at": began + times.step * int(number),
                "address": f"{network.addresses[layout[number]]}:{PORT}" if is_pinned else head,
            }
            for number, topic in tables.topics().items()
        }
        publishers = {
            "role": "publishers", "host": network.addresses["h"], "port": PORT, "burst": BURST,
            "burst_at": began + times.burst, "topics": topics, **common,
        }  # fmt: skip
        subscribers = {
            "role": "subscribers",
            "head": head,
            "topics": topics,
            **common,
        }
        results = [folder / "publishers.json", folder / "subscribers.json"]
        specs = zip((publishers, subscribers), results, strict=True)
        processes = [_client(network, stack, spec | {"result": str(path)}) for spec, path in specs]
        time.sleep(max(0.0, allowed_at - COMMAND_SECONDS - time.monotonic()))
        _balance(network, "on")
        pairs = zip(processes, results, strict=True)
        sent, got = (_answer(process, path, times.end + 60.0) for process, path in pairs)
    return _summary(sent, got, topics, times)


def _start_nodes(network: Network, stack: ExitStack, folder: Path, policy: str) -> None:
    secret = secrets.token_urlsafe(32)
    link = f"{network.addresses['h']}:{LINK_PORT}"
    budgets = ",".join(f"{topic_name(n)}={t.latency - FIXED_DELAYS:g}" for n, t in tables.topics().items())
    for name in ("h", *tables.TABLE_5):
        host = network.addresses[name] if name != "h" else "0.0.0.0"
        arguments = ["--host", host, "--port", str(PORT), "--log-level", "info"]
        arguments += ["--set", f"cluster.balance={policy}", "--set", "listeners.0.allow_anonymous=true"]
        arguments += ["--set", "features.queue_qos0=true"]  # also for a session on its way to another edge
        if name == "h":
            arguments += ["--role", "head", "--set", f"cluster.link_host={network.addresses[name]}"]
            arguments += ["--set", f"cluster.link_port={LINK_PORT}"]
        else:
            mbit = tables.TABLE_5[name][1]
            arguments += ["--role", "edge", "--head", link, "--set", f"cluster.uplink={mbit}"]
            arguments += ["--set", f"cluster.budgets={budgets}"]
        prefix = tuple(network.inside(name))
        node = NodeProcess(name, arguments, secret, folder / f"{name}.log", prefix)
        stack.callback(node.stop)
        node.start()


def _balance(network: Network, state: str) -> None:
    """The paper allows balancing from a second after the burst on; operators are on the head's own machine."""
    command = [sys.executable, "-m", "tidegate", "cluster", "balance", state, "--head", f"127.0.0.1:{PORT}"]
    done = subprocess.run(
        [*network.inside("h"), *command], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode:
        raise LabError(f"balancing could not be turned {state}: {done.stderr.strip()}", "")


def _client(network: Network, stack: ExitStack, spec: dict[str, Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*network.inside("clients"), sys.executable, "-c", CLIENTS], stdin=subprocess.PIPE, text=True
    )
    stack.callback(_end, process)
    assert process.stdin is not None
    process.stdin.write(json.dumps(spec) + "\n")
    process.stdin.close()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def _answer(process: subprocess.Popen[str], result: Path, timeout: float) -> dict[str, Any]:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise LabError(
            "the clients did not come to an end", "is the machine busy? Try again when it is not"
        ) from None
    if process.returncode:
        raise LabError("the clients failed", "what they say stands above")
    answer: dict[str, Any] = json.loads(result.read_text())
    return answer


def _summary(
    sent: dict[str, Any], got: dict[str, Any], topics: dict[str, Any], times: Times
) -> dict[str, Any]:
    states = got["balancing"]
    phases = {phase["number"]: phase for state in states for phase in state["phases"]}
    moves = [
        [round(times.shown(phase["at"]), 2), int(topic.removeprefix("t")), clients, source, target]
        for phase in phases.values()
        for topic, clients, source, target in phase["moves"]
    ]
    after = [phase for phase in phases.values() if phase["at"] >= times.burst - 1.0]
    expected = {n: sent["sent"][n] * topics[n]["subscribers"] for n in topics}
    received = {n: each["count"] for n, each in got["topics"].items()}
    worst = {n: each["worst"] / topics[n]["limit"] for n, each in got["topics"].items()}
    curve = [
        [
            round(times.shown(state["t"]), 2),
            state["edges"].get("b1", {}).get("waiting", {}).get(topic_name("8"), 0) * SCALE,
        ]
        for state in states
    ]
    return {
        "first": min((round(times.shown(phase["at"]), 2) for phase in after), default=None),
        "actions": len(after),
        "actions_before": len(phases) - len(after),
        "moves": moves,
        "missed": sum(each["missed"] for each in got["topics"].values()),
        "worst_share_of_budget": max(worst.values()),
        "worst_topic": max(worst, key=lambda n: worst[n]),
        "delivered": sum(received.values()),
        "expected": sum(expected.values()),
        "reconnects": got["reconnects"],
        "drained": _drained(curve),
        "curve": curve,
        "uplinks": [
            [
                round(times.shown(state["t"]), 2),
                *(state["edges"].get(b, {}).get("uplink", 0.0) for b in tables.TABLE_5),
            ]
            for state in states
        ],
    }


def _drained(curve: list[list[float]]) -> float | None:
    """When topic 8's queue was empty after it had been long."""
    was_long = False
    for t, depth in curve:
        was_long = was_long or (depth > 100 and t > tables.BURST_AT)
        if was_long and depth <= NEARLY_NONE:
            return t
    return None


def run(context: Context) -> dict[str, Any]:
    times = Times(context.is_quick)
    names = QUICK if context.is_quick else tuple(RUNS)
    rows = []
    turns = [
        (name, seed)
        for name in names
        for seed in range(context.number_of_seeds(REPEATED.get(name, 1), 1))
    ]
    for name, seed in context.follow("brokers in namespaces", turns):
        policy, is_pinned = RUNS[name]
        with StallWatch() as watch:
            row = run_one(policy, is_pinned, times, seed)
        rows.append({"run": name, "seed": seed, "stood_still": round(watch.stalls.seconds, 1), **row})
    return {
        "parameters": {
            "brokers": "one process each in its own network namespace; tc tbf at Table V's bandwidths both ways",
            "clients": "40 publishers and 56 subscribers of Table VI, QoS 0, sessions that outlive their connection",
            "burst": f"topics {', '.join(BURST)} twice as fast from 30 s on; this run's own clock had it at "
            f"{times.burst:g} s and ended at {times.end:g} s",
            "scale": f"messages {SCALE} times larger and rarer than in Table VI: the same bits per second; depths are "
            "shown as the paper's",
            "judged": "where there are several runs, the one in which the host took the processors away least",
            "delays": "those of the paper are taken off the budgets (requirement − 0.3 s); the wire adds none",
        },
        "summary": rows,
    }


def present(report: dict[str, Any]) -> Presentation:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in report["summary"]:
        rows.setdefault(row["run"], []).append(row)
    for each in rows.values():
        each.sort(key=_stood_still)
    page = Presentation()
    for row in rows.get("E2.1 paper", ())[:1]:
        is_right = row["first"] is not None and abs(row["first"] - 34.0) <= 2.0 and row["actions"] == 1
        is_right = (
            is_right and row["missed"] == 0 and [move[1:] for move in row["moves"]] == [[1, 8, "b1", "b0"]]
        )
        page.claims.append(
            Claim(
                text="On real brokers: trigger at 34 s ± 2 s, topic 1 moves b1→b0, one action, no deadline missed",
                paper="34 s, topic 1 to b0, one, none",
                ours=f"{_moves(row)}; {row['actions']} action; {row['missed']} missed of {row['delivered']:,}, worst "
                f"{row['worst_share_of_budget']:.0%} of its budget; queue empty at {_at(row['drained'])}",
                verdict=Verdict.HOLDS if is_right else Verdict.FAILS,
                short="E2.1 on real brokers in namespaces: published policy acts",
            )
        )
    for published, ours in (("E2.1 paper", "E2.1 deadline"), ("E2.2 paper", "E2.2 deadline")):
        if published in rows and ours in rows:
            page.claims.append(_better(ours, rows[published][0], rows[ours][0]))
    page.tables.append(
        Table(
            title="Runs",
            head=["run", "machine stood still, s", "first action, s", "actions", "before the burst", "moved", "missed",
                  "worst wait over budget", "delivered", "expected", "topic 8 drained"],
            rows=[
                [row["run"], f"{row['stood_still']:.1f}", _at(row["first"]), str(row["actions"]),
                 str(row["actions_before"]), _moves(row),
                 str(row["missed"]), f"{row['worst_share_of_budget']:.2f} (topic {row['worst_topic']})",
                 f"{row['delivered']:,}", f"{row['expected']:,}", _at(row["drained"])]
                for each in rows.values() for row in each
            ],
            note="Expected counts what was published before the last subscriber of a topic came, and what was on its "
            "way at the end; nothing of it was lost.",
        )
    )  # fmt: skip
    page.figures.append(
        Figure(
            name="queue",
            text="Queue of topic 8 on b1, real brokers",
            draw=lambda canvas: _draw(canvas, report["summary"]),
        )
    )
    return page


def _better(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Claim:
    return Claim(
        text=f"{name}: on real brokers the default misses nothing, at no more actions than the published policy",
        paper="–",
        ours=f"{ours['actions']} actions, {ours['missed']} missed of {ours['delivered']:,}, worst wait "
        f"{ours['worst_share_of_budget']:.0%} of its budget; published policy {theirs['actions']}, {theirs['missed']}, "
        f"{theirs['worst_share_of_budget']:.0%}",
        verdict=Verdict.HOLDS
        if ours["missed"] == 0 and ours["actions"] <= theirs["actions"]
        else Verdict.FAILS,
    )


def _stood_still(row: dict[str, Any]) -> float:
    return float(row["stood_still"])


def _at(t: float | None) -> str:
    return "–" if t is None else f"{t:.1f} s"


def _moves(row: dict[str, Any]) -> str:
    return "; ".join(f"{t:.1f} s: {n} of {topic} {a}→{b}" for t, topic, n, a, b in row["moves"]) or "none"


def _draw(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    axes = canvas.subplots()
    shown = [name for name in RUNS if name.startswith("E2.1")]
    for name in shown:
        calmest = sorted((row for row in rows if row["run"] == name), key=_stood_still)
        for row in calmest[:1]:
            points = [(t, depth) for t, depth in row["curve"] if t >= 28.0]
            if points:
                axes.plot(*zip(*points, strict=True), label=row["run"])
    axes.set_xlabel("s")
    axes.set_ylabel("topic 8 waiting on b1, messages")
    axes.legend()


EXPERIMENT = Experiment(
    name="e2.8-real",
    title="The paper's burst on real brokers",
    question="Do brokers in network namespaces, at the paper's bandwidths, do what the simulator says?",
    run=run,
    present=present,
    parts=(Part.REAL,),
)
