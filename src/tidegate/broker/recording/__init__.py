"""What a broker tells a recorder: see `tap.py`."""

from tidegate.broker.recording.batch import RUN_WIDTH, Level, Recording, Rows, Runs, Shape, Sink
from tidegate.broker.recording.tap import Tap

__all__ = ["RUN_WIDTH", "Level", "Recording", "Rows", "Runs", "Shape", "Sink", "Tap"]
