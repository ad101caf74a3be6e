"""Paper 5: dynamic load balancing for shared subscriptions (Todoroki, Hiroshima University)."""

from tidegate.lab.experiment import Paper
from tidegate.lab.shared import beyond, comparison, cost, interval

PAPER = Paper(
    number=5,
    name="shared",
    title="Dynamic load balancing for shared subscriptions",
    source="Todoroki: dynamic load balancing for MQTT shared subscriptions, master thesis, Hiroshima University (in "
    "Japanese), on Mochi-MQTT Server and paho.mqtt.java",
    experiments=(
        comparison.EQUAL,
        comparison.UNEQUAL,
        comparison.CHANGE,
        comparison.BURSTS,
        interval.EXPERIMENT,
        comparison.CHURN,
        cost.EXPERIMENT,
        beyond.EXPERIMENT,
    ),
)

__all__ = ["PAPER"]
