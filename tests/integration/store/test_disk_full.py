"""A disk that fills in mid-load, and one that may not be written to: up, honest, and well again without a restart."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.crash.process import BrokerProcess, free_port, wait_until
from tests.integration.store.disks import (
    FileSize,
    Tmpfs,
    can_mount,
    limit_file_size,
    metric,
    obey_permissions,
    small_disk,
)
from tidegate.broker.store.store import FILE_NAME
from tidegate.cli.status import ExitStatus
from tidegate.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.mqtt.properties import Property
from tidegate.testing.raw import RawClient

FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}
DISKS = [Tmpfs, FileSize] if can_mount() else [FileSize]
WINDOW = 50
PAYLOAD = 2_000
FAILING = "store cannot write"


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tmpfs | FileSize]:
    folder = tmp_path / "disk"
    with small_disk(folder) if request.param is Tmpfs else nullcontext(folder.mkdir()):
        yield request.param(folder)


@pytest.fixture
def broker(disk: Tmpfs | FileSize, tmp_path: Path) -> Iterator[BrokerProcess]:
    options = ("--metrics-port", free_port(), "--set", "store.retry=0.05")
    with BrokerProcess(tmp_path / "disk" / "data", *options, log=tmp_path / "log") as process:
        yield process


class Pipeline:
    """A publisher with a window, which counts what was acknowledged."""

    def __init__(self, broker: BrokerProcess, qos: int) -> None:
        self.client = RawClient(broker.port, timeout=20)
        self.client.connect("writer", clean_start=False, properties=FOR_EVER)
        self.qos = qos
        self.sent = 0
        self.acknowledged = 0

    def send(self) -> None:
        self.sent += 1
        payload = b"%d " % self.sent + b"x" * PAYLOAD
        self.client.send(Publish(topic="t", payload=payload, qos=self.qos, packet_identifier=self.sent))

    def take(self) -> None:
        """One acknowledgement, in the order of sending."""
        self.acknowledged += 1
        if self.qos == 1:
            self.client.take(Puback, packet_identifier=self.acknowledged, reason_code=0)
        else:
            self.client.take(Pubrec, packet_identifier=self.acknowledged, reason_code=0)
            self.client.send(Pubrel(packet_identifier=self.acknowledged))
            self.client.take(Pubcomp, packet_identifier=self.acknowledged)


def load_until_full(broker: BrokerProcess, disk: Tmpfs | FileSize, pipeline: Pipeline) -> None:
    """Publish, fill the disk in between, and go on until the broker says so."""
    while pipeline.sent < 200:
        pipeline.send()
        if pipeline.sent >= WINDOW:
            pipeline.take()
    disk.fill(broker)
    while FAILING not in broker.logged():
        assert pipeline.sent < 20_000
        pipeline.send()
        try:
            pipeline.client.take(
                Puback if pipeline.qos == 1 else Pubrec, 0.2, packet_identifier=pipeline.acknowledged + 1
            )
        except TimeoutError:
            continue
        pipeline.acknowledged += 1
        if pipeline.qos == 2:
            pipeline.client.send(Pubrel(packet_identifier=pipeline.acknowledged))


def subscribe(broker: BrokerProcess, qos: int) -> None:
    with RawClient(broker.port) as reader:
        reader.connect("reader", clean_start=False, properties=FOR_EVER)
        reader.subscribe("t", qos)
        reader.disconnect()


def numbers(broker: BrokerProcess, count: int) -> list[int]:
    with RawClient(broker.port, timeout=20) as reader:
        assert reader.connect("reader", clean_start=False, properties=FOR_EVER).session_present
        found = []
        while len(found) < count:
            message = reader.take(Publish)
            reader.acknowledge(message)
            found.append(int(message.payload.split()[0]))
        return found


@pytest.mark.parametrize("qos", [1, 2])
def test_a_disk_that_fills_in_mid_load_loses_nothing_and_recovers_without_restart(
    broker: BrokerProcess, disk: Tmpfs | FileSize, qos: int
) -> None:
    subscribe(broker, qos)
    pipeline = Pipeline(broker, qos)
    load_until_full(broker, disk, pipeline)
    assert metric(broker, "tidegate_store_is_failing") == 1
    assert metric(broker, "tidegate_store_failures_total") > 0
    pipeline.client.barrier()  # it is there and answers
    assert broker.is_running()
    disk.free(broker)
    wait_until(lambda: metric(broker, "tidegate_store_is_failing") == 0, "the store writes again")
    assert "store writes again" in broker.logged()
    with RawClient(broker.port, timeout=20) as other:  # new work is taken at once
        other.connect("other")
        assert other.publish("r", b"x", qos=1, retain=True) is not None
    pipeline.client.close()
    # What was sent and not acknowledged may have been taken, too: those behind the last one arrive, or not.
    found = numbers(broker, pipeline.acknowledged)
    assert found == list(range(1, pipeline.acknowledged + 1))
    assert broker.is_running()


def test_a_kill_while_the_disk_is_full_loses_nothing_acknowledged(
    broker: BrokerProcess, disk: Tmpfs | FileSize
) -> None:
    subscribe(broker, 2)
    pipeline = Pipeline(broker, 2)
    load_until_full(broker, disk, pipeline)
    if isinstance(disk, Tmpfs):
        disk.free(broker)
    broker.restart()
    pipeline.client.close()
    assert numbers(broker, pipeline.acknowledged) == list(range(1, pipeline.acknowledged + 1))


@pytest.mark.parametrize("has_store", [False, True])
def test_a_folder_that_may_not_be_written_to_is_named_at_the_start(tmp_path: Path, has_store: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if has_store:
        with BrokerProcess(folder, log=tmp_path / "first.log") as first:
            first.stop()
        (folder / (FILE_NAME + ".lock")).unlink()
    folder.chmod(0o555)
    broker = BrokerProcess(folder, log=tmp_path / "log", before=obey_permissions)
    broker.spawn()
    try:
        assert broker.wait_exit() == ExitStatus.STARTUP
        assert "Permission denied" in broker.logged()
        assert "hint: name a folder" in broker.logged()
        assert "Traceback" not in broker.logged()
    finally:
        broker.kill()
        folder.chmod(0o755)
    assert (folder / FILE_NAME).exists() is has_store


def test_a_full_disk_at_the_start_is_named(disk: Tmpfs | FileSize, tmp_path: Path) -> None:
    before = limit_file_size if isinstance(disk, FileSize) else None
    broker = BrokerProcess(tmp_path / "disk" / "data", log=tmp_path / "log", before=before)
    if isinstance(disk, Tmpfs):
        disk.fill(broker)
    broker.spawn()
    assert broker.wait_exit() == ExitStatus.STARTUP
    assert "Traceback" not in broker.logged()
    assert [line for line in broker.logged().splitlines() if line.startswith("error:")], broker.logged()
    broker.kill()
    if isinstance(disk, Tmpfs):
        disk.free(broker)
    with BrokerProcess(tmp_path / "disk" / "data", log=tmp_path / "log") as second:
        assert second.is_running()
