"""A discrete-event simulator on a virtual clock that runs the objects the node runs.

It knows time, links, servers and sources; what is decided comes from `flow/`, what is on the wire from `mqtt/`. A run
is a function of its seed: ties in time are broken by a counter, and every source has a random generator of its own,
derived from the seed and the source's name, so adding one source does not change what the others draw.
"""

from tidegate.sim.clock import Simulation, Timer
from tidegate.sim.cluster import ClusterSimulation
from tidegate.sim.fluid import FluidNode, FluidQueue
from tidegate.sim.gate import Arrival, Gate, Inlet
from tidegate.sim.link import Link
from tidegate.sim.server import Server
from tidegate.sim.source import Pace, Source

__all__ = [
    "Arrival",
    "ClusterSimulation",
    "FluidNode",
    "FluidQueue",
    "Gate",
    "Inlet",
    "Link",
    "Pace",
    "Server",
    "Simulation",
    "Source",
    "Timer",
]
