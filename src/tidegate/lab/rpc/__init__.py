"""Paper 4: RPC to devices over distributed queues."""

from tidegate.lab.experiment import Paper
from tidegate.lab.rpc import (
    faults,
    functional,
    misrouting,
    overlap,
    routing,
    scaling,
    stall,
    steps,
    throughput,
)

PAPER = Paper(
    number=4,
    name="rpc",
    title="RPC backbone to devices over distributed queues",
    source="D. Lombardi, bachelor thesis, UFSCar, 2025; settings from its repository",
    experiments=(
        functional.EXPERIMENT,
        misrouting.EXPERIMENT,
        scaling.EXPERIMENT,
        throughput.EXPERIMENT,
        overlap.EXPERIMENT,
        faults.EXPERIMENT,
        stall.EXPERIMENT,
        routing.EXPERIMENT,
        steps.EXPERIMENT,
    ),
)
