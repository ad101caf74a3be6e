"""A full disk, a folder that is gone, a killed process: messages flow on, and what was not recorded is counted."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.broker.gate_traffic import publish
from tests.integration.lake.conftest import Recorded, clients, rows_of
from tests.resilience.support import wait_until
from tidegate.broker.flow_settings import Backoff, FlowSettings
from tidegate.broker.recording import Level, Rows, Runs, Shape
from tidegate.lake.errors import LakeError
from tidegate.lake.files import TableFiles
from tidegate.lake.recorder import Recorder, table_of
from tidegate.lake.settings import LakeSettings
from tidegate.lake.target import Target

BEACON = Shape("beacon", ("mac", "gw", "rssi"))


def beacons(count: int, at: float = 1_700_000_000.0) -> pa.Table:
    return table_of(Rows(clock=0.0, shape=BEACON, rows=[(at, f"m{n}", "g", -1.0) for n in range(count)]))


def make_files(folder: Path, **options: object) -> TableFiles:
    settings = LakeSettings(path=str(folder), **options)  # type: ignore[arg-type]
    return TableFiles("beacon", Target.open(folder), "n", "r", settings)


def test_what_cannot_be_written_is_counted_in_the_table_itself(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    files = make_files(lake)
    lake.mkdir()
    (lake / "beacon").write_text("in the way")  # no folder can be made here
    files.add(beacons(5), 0.0)
    files.roll(0.0)
    files.add(beacons(7), 0.5)
    files.roll(0.5)  # within a second of the failure it does not even try
    assert (files.lost, files.rows, files.files) == (12, 0, 0)
    (lake / "beacon").unlink()
    files.lose(3)
    files.add(beacons(2), 2.0)
    files.roll(2.0)
    assert (files.lost, files.rows, files.files) == (15, 2, 1)
    assert [row["lost"] for row in rows_of(lake, "beacon")] == [15, None]
    files.add(beacons(1), 3.0)
    files.roll(3.0)
    assert sum(row.get("lost") or 0 for row in rows_of(lake, "beacon")) == 15


def test_a_failure_in_the_midst_of_a_file_loses_that_file_and_leaves_nothing(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes every write beyond it fail, as a full disk does; in a process of its own."""
    program = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tidegate.broker.recording import Rows, Shape
from tidegate.lake.files import TableFiles
from tidegate.lake.recorder import table_of
from tidegate.lake.settings import LakeSettings
from tidegate.lake.target import Target
shape = Shape("beacon", ("mac", "gw", "rssi"))
def beacons(count):
    rows = [(1_700_000_000.0, f"m{{n}}", "g", -1.0) for n in range(count)]
    return table_of(Rows(clock=0.0, shape=shape, rows=rows))
files = TableFiles("beacon", Target.open({str(tmp_path)!r}), "n", "r", LakeSettings(path={str(tmp_path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
files.add(beacons(50_000), 0.0)
files.roll(0.0)
assert (files.lost, files.rows) == (50_000, 0), (files.lost, files.rows)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
files.add(beacons(10), 10.0)
files.roll(10.0)
assert (files.lost, files.rows) == (50_000, 10)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith("_")] == []
    assert sum(row.get("lost") or 0 for row in rows_of(tmp_path, "beacon")) == 50_000


def test_a_recorder_without_room_drops_and_says_so_and_delays_nobody(tmp_path: Path) -> None:
    # Nobody is held: on a machine that stands still a flood of one would rightly be.
    recorded = Recorded(tmp_path / "lake", Level.FULL, flow=FlowSettings(backoff=Backoff(policy="off")))
    with recorded.broker as broker:
        # A recorder that does not come to its work: its thread has ended.
        recorded.recorder.close()
        tap = broker.broker.core.tap
        assert tap is not None
        with clients(broker, "sub", "pub") as (sub, pub):
            sub.subscribe("t/#", qos=0)
            for number in range(600):
                pub.send_bytes(b"".join(publish(number, 0, f"t/{n}") for n in range(50)))
                broker.call(tap.flush)
            # A PINGREQ would pass what waits in a lane.
            wait_until(lambda: broker.statistics()["publish_sent"] == 30_000, "all messages sent on")
            broker.call(tap.flush)
            stats = broker.statistics()
            assert stats["publish_received"] == 30_000
            assert stats["recorder_dropped"] > 0
    assert recorded.recorder.statistics()["recorder_waiting"] <= recorded.recorder.settings.max_pending + 1


def test_rows_that_there_was_no_room_for_are_told_by_the_next_of_their_table(tmp_path: Path) -> None:
    held, is_held = threading.Event(), threading.Event()

    class Slow(Recorder):
        def _take(self, batch: Runs | Rows) -> None:
            is_held.set()
            held.wait(10.0)
            super()._take(batch)

    recorder = Slow(LakeSettings(path=str(tmp_path), max_pending=16), "n")
    beacon = {"mac": "m", "gw": "g", "rssi": -1.0}
    message = {"client_id": "c", "topic": "t", "qos": 0, "window_us": 1, "bytes": 1}
    assert recorder.record("beacon", [beacon])
    assert is_held.wait(10.0)
    for _ in range(16):
        assert recorder.record("beacon", [beacon])
    assert not recorder.record("beacon", [beacon] * 3)
    assert not recorder.record("beacon", [beacon, beacon | {"label": "x"}])
    assert not recorder.record("publish", [message | {"count": 5}, message | {"count": 2}])
    held.set()
    deadline = time.monotonic() + 10.0
    while recorder.statistics()["recorder_waiting"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert recorder.record("publish", [message | {"count": 1}])
    recorder.close()
    assert recorder.broken == 0
    assert recorder.statistics()["recorder_lost"] == 5 + 7
    assert len(rows_of(tmp_path, "beacon")) == 17
    assert sum(row.get("lost") or 0 for row in rows_of(tmp_path, "beacon")) == 5
    assert [row["lost"] for row in rows_of(tmp_path, "publish")] == [7]


def test_a_clock_that_jumps_costs_no_more_than_the_hours_that_occur(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    data = pa.concat_tables([beacons(2, 10.0), beacons(3), beacons(1, -10.0)])
    began = time.process_time()
    files.add(data, 0.0)
    files.roll(0.0)
    assert time.process_time() - began < 1.0  # 470,000 hours, one by one, take longer
    assert sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")) == [
        "beacon/date=1969-12-31/hour=23",
        "beacon/date=1970-01-01/hour=00",
        "beacon/date=2023-11-14/hour=22",
    ]
    assert len(rows_of(tmp_path, "beacon")) == 6


def test_files_roll_by_age_by_size_and_by_the_hour(tmp_path: Path) -> None:
    files = make_files(tmp_path, roll_seconds=5.0, roll_bytes=65_536)
    assert files.due() == float("inf")
    files.add(beacons(3), 100.0)
    assert files.due() == 105.0
    two_hours = pa.concat_tables([beacons(2, 1_700_000_000.0), beacons(4, 1_700_003_600.0)])
    files.add(two_hours, 101.0)
    assert files.files == 1  # the first hour is complete
    files.add(beacons(270_000, 1_700_003_601.0), 102.0)
    assert files.files == 2  # and so is a file of that size
    files.roll(103.0)
    paths = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert [path.rpartition("/")[0] for path in paths] == [
        "beacon/date=2023-11-14/hour=22",
        "beacon/date=2023-11-14/hour=23",
    ][: len(paths)] + ["beacon/date=2023-11-14/hour=23"] * (len(paths) - 2)
    assert len(rows_of(tmp_path, "beacon")) == 3 + 2 + 4 + 270_000


def test_a_killed_broker_leaves_whole_files_and_at_most_hidden_ones(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "tidegate", "serve", "--port", "0", "--log-level", "error"]
    for key, value in (("path", lake), ("level", "full"), ("window", 0.1), ("roll_seconds", 0.1)):
        command += ["--set", f"lake.{key}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "recording to" in line
        port = int(line.split("127.0.0.1:")[1].split()[0].rstrip(","))
        from tidegate.testing.raw import RawClient

        with RawClient(port) as client:
            client.connect("pub")
            deadline = time.monotonic() + 30.0
            number = 0
            while len(list(lake.glob("publish/*/*/*.parquet"))) < 3:
                assert time.monotonic() < deadline
                client.send_bytes(publish(number))
                client.barrier()
                number += 1
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    from tidegate.lake.catalog import State, scan

    states = {each.state for each in scan(Target.open(lake))}
    assert states <= {State.GOOD, State.TEMPORARY}
    found = rows_of(lake, "publish")
    assert 0 < len(found) <= number
    assert {row["client_id"] for row in found} == {"pub"}


def test_a_lake_that_cannot_be_written_to_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError) as caught:
        Recorder(LakeSettings(path=str(tmp_path / "file" / "lake")), "n")
    assert "lake.path" in caught.value.hint
    with pytest.raises(LakeError) as caught:
        Recorder(LakeSettings(path="nonsense://x/y"), "n")
    assert "no such file system" in str(caught.value)


def test_a_lake_may_be_any_file_system(tmp_path: Path) -> None:
    recorder = Recorder(LakeSettings(path=f"file://{tmp_path}/lake"), "n")
    recorder.record("beacon", [{"mac": "m", "gw": "g", "rssi": -1.0}])
    recorder.close()
    assert len(rows_of(tmp_path / "lake", "beacon")) == 1
    target = Target(
        pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem()), "other"
    )  # not a local one
    pending = target.create("a/b.parquet")
    pending.stream.write(b"x")
    [hidden] = (tmp_path / "other" / "a").iterdir()
    assert hidden.name.startswith("_b.parquet.")
    pending.commit()
    assert [path.name for path in (tmp_path / "other" / "a").iterdir()] == ["b.parquet"]
