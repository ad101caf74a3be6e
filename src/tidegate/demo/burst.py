"""The demo's cluster: a head and two edges of small uplinks, and a burst that one of them cannot carry alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tidegate.demo.crowd import UPLINK
from tidegate.demo.processes import DemoError, Program

if TYPE_CHECKING:
    from tidegate.demo.story import Stage

SCREENS: Final = 40
BUDGET: Final = 2.0  # seconds from the newsroom to a screen
LOOK: Final = 0.5  # seconds between two looks of the head at its edges
MOVED: Final = 20.0  # seconds within which the head has to have answered the burst
COUNTED: Final = 20.0


def cluster_burst(stage: Stage) -> None:
    """A second, small cluster with a page of its own, which stays until the end."""
    stage.say(
        f"\nA cluster. A head and two edges that can send {UPLINK:g} Mbit/s each; {SCREENS} screens read four topics, "
        f"whose headlines may take {BUDGET:g} s."
    )
    settings = (f"cluster.uplink={UPLINK:g}", f"cluster.budgets=news/#={BUDGET:g}", f"cluster.interval={LOOK:g}")
    local = importlib.import_module("tidegate.cluster.local")
    # Bound: nodes end with the thread that starts them, and that is the one that tells the story.
    cluster = stage.enter(local.LocalCluster(edges=2, is_bound=True, settings=settings))
    url = cluster.head.addresses[0]
    page = f"{stage.start_console(url)}#/cluster" if stage.has_console else "tidegate cluster status"
    crowd = stage.start("the crowd", "tidegate.demo.crowd", url, str(SCREENS))
    stage.say(f"  look at {page}: the head has placed the screens of each topic together, on an edge with room")
    stage.wait(6)
    _burst(stage, crowd)
    crowd.order("calm")
    stage.say("  the burst is over")
    crowd.order("count")
    found = _wait(crowd, "counted", COUNTED)
    stage.say(f"  {found['headlines']} headlines made {found['got']} deliveries, and {found['lost']} were lost")
    stage.wait(5)


def _burst(stage: Stage, crowd: Program) -> None:
    crowd.order("burst")
    found = _wait(crowd, "burst", MOVED)
    topics = " and ".join(found["topics"])
    stage.say(
        f"  a burst: {topics} are five times as fast, more than {found['edge']} can send; soon they would be late"
    )
    try:
        _wait(crowd, "moved", MOVED)
    except DemoError:
        if not crowd.is_running:
            raise
        stage.say(f"  the head moved nobody within {MOVED:g} s: this machine may be too busy for the burst")
        return
    told = _tell_moves(stage, crowd, 0)
    stage.wait(12)
    _tell_moves(stage, crowd, told)


def _tell_moves(stage: Stage, crowd: Program, told: int) -> int:
    """What was not told yet; how much is told then."""
    moves = [move for found in crowd.objects() if found["event"] == "moved" for move in found["moves"]]
    for topic, clients, source, target in moves[told:]:
        stage.say(f"  the head acts: {clients} subscribers of {topic} moved from {source} to {target}")
    return len(moves)


def _wait(crowd: Program, event: str, seconds: float) -> dict[str, Any]:
    """The first of its kind that the crowd tells; raises DemoError."""
    mark = f'{{"event": "{event}"'
    crowd.wait_line(lambda line: line.startswith(mark), seconds)
    return next(found for found in crowd.objects() if found["event"] == event)
