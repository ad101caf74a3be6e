"""Real brokers that record, raw clients, and the rows they left."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tidegate.broker.recording import Level
from tidegate.broker.settings import Limits
from tidegate.lake.recorder import Recorder
from tidegate.lake.settings import LakeSettings
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

Row = dict[str, Any]


def rows_of(lake: Path, table: str) -> list[Row]:
    """All rows of a table, of files that count."""
    files = sorted(path for path in lake.glob(f"{table}/*/*/*.parquet") if not path.name.startswith("_"))
    return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


class Recorded:
    """A broker that records; after `end` its rows can be read."""

    def __init__(self, lake: Path, level: Level, **options: Any) -> None:
        self.lake = lake
        window = options.pop("window", 60.0)
        self.recorder = Recorder(
            LakeSettings(path=str(lake), level=level, window=window, roll_seconds=3600.0), "node-1"
        )
        self.broker = BrokerThread(
            recording=self.recorder.recording, limits=Limits(connection_rate=0), **options
        )

    def end(self) -> None:
        self.broker.__exit__(None, None, None)
        self.recorder.close()
        assert self.recorder.broken == 0

    def rows(self, table: str) -> list[Row]:
        return rows_of(self.lake, table)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., Recorded]]:
    """`record(Level.FULL, flow=…)` starts a broker that records to a lake of its own."""
    started: list[Recorded] = []

    def start(level: Level, **options: Any) -> Recorded:
        made = Recorded(tmp_path / "lake", level, **options)
        made.broker.__enter__()
        started.append(made)
        return made

    yield start
    for each in started:
        each.broker.__exit__(None, None, None)
        each.recorder.close()


@contextmanager
def clients(broker: BrokerThread, *names: str, version: int = 5) -> Iterator[list[RawClient]]:
    """Connected clients of these names."""
    with ExitStack() as stack:
        found = [stack.enter_context(RawClient(broker.port, version)) for _ in names]
        for client, name in zip(found, names, strict=True):
            client.connect(name)
        yield found
