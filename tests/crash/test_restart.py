"""How long a broker with a long queue on disk needs until it serves, and how much memory."""

import json
import time
from pathlib import Path

import psutil
import pytest

from tests.crash.process import BrokerProcess
from tidegate.broker.store.schema import connect, prepare
from tidegate.broker.store.store import FILE_NAME
from tidegate.mqtt import Publish
from tidegate.testing.raw import RawClient

SESSIONS = 100
NEVER = 4_294_967_295


def build(folder: Path, queued: int) -> None:
    """A store as a broker leaves it whose subscribers have been away for long: `queued` messages, 64 bytes each."""
    folder.mkdir()
    path = folder / FILE_NAME
    db = connect(path)
    prepare(db, path)
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO session VALUES (?, ?, NULL, ?, 5, ?, 0)",
        ((sid, f"reader-{sid}", NEVER, time.time()) for sid in range(SESSIONS)),
    )
    db.executemany(
        "INSERT INTO subscription VALUES (?, ?, 1, 0, 0, 0)",
        ((sid, b"q/%d" % sid) for sid in range(SESSIONS)),
    )
    db.executemany(
        "INSERT INTO message VALUES (?, ?, ?, 1, x'', NULL, 'writer')",
        ((mid, b"q/%d" % (mid % SESSIONS), b"%064d" % mid) for mid in range(1, queued + 1)),
    )
    db.executemany(
        "INSERT INTO queue VALUES (?, ?, ?, 1, 0, '', 140, 0, NULL)",
        ((mid % SESSIONS, mid // SESSIONS + 1, mid) for mid in range(1, queued + 1)),
    )
    db.execute("COMMIT")
    db.close()


@pytest.mark.serial
def test_a_broker_with_a_long_queue_on_disk_serves_within_five_seconds(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    queued: int = pytestconfig.getoption("--queued")
    build(tmp_path / "data", queued)
    with BrokerProcess(tmp_path / "data") as broker:
        broker.restart()  # the first start found a file that was closed; now there is a log of a crash, too
        started = time.monotonic()
        with RawClient(broker.port, timeout=20) as writer:
            writer.connect("writer")
            writer.publish("q/1", b"new", qos=1)
        acknowledged = time.monotonic() - started
        memory = psutil.Process(broker.pid).memory_info().rss
        with RawClient(broker.port, 4, timeout=20) as reader:
            assert reader.connect("reader-1", clean_start=False).session_present
            for mid in range(1, 20 * SESSIONS, SESSIONS):
                message = reader.take(Publish)
                assert int(message.payload) == mid
                reader.acknowledge(message)
        print(
            json.dumps(
                {
                    "queued": queued,
                    "start_seconds": round(broker.start_seconds, 2),
                    "first_acknowledgement_seconds": round(acknowledged, 2),
                    "resident_mb": round(memory / 1e6),
                }
            )
        )
        assert broker.start_seconds + acknowledged < 5
        assert memory < 300e6
