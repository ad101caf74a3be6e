"""Paper 1: broker back-off and priority scheduling (Al Enany, Harb, Attiya 2022)."""

from tidegate.lab.backoff import cost, detection, flood, latency, traffic
from tidegate.lab.experiment import Paper

PAPER = Paper(
    number=1,
    name="backoff",
    title="Broker back-off and priority scheduling",
    source="Al Enany, Harb, Attiya: a back-off algorithm and priority scheduling for MQTT brokers (2022), "
    "Mosquitto 1.6.12 modified in C",
    experiments=(
        traffic.EXPERIMENT,
        cost.EXPERIMENT,
        latency.EXPERIMENT,
        detection.EXPERIMENT,
        flood.EXPERIMENT,
    ),
)

__all__ = ["PAPER"]
