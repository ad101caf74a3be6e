"""The process that receives: nothing is acknowledged before it is on disk, and nothing is taken beyond the bound."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from tests.spark.conftest import DEADLINE, payloads_in, publish, wait_until
from tidegate.broker.settings import Limits
from tidegate.client import Client, Message
from tidegate.spark.errors import SpoolError
from tidegate.spark.options import read_options
from tidegate.spark.segments import Done, SegmentWriter, Spool
from tidegate.spark.spool import SpoolProcess, locked
from tidegate.spark.supervise import SpoolSupervisor
from tidegate.testing import BrokerThread

Start = Callable[..., SpoolSupervisor]


@pytest.fixture
def start(spool: Spool) -> Iterator[Start]:
    """Starts a spool process for a broker's port; all are stopped at the end."""
    made: list[SpoolSupervisor] = []

    def start(port: int, **options: str) -> SpoolSupervisor:
        given = {"url": f"mqtt://127.0.0.1:{port}", "topics": "t/#", "spool": str(spool.folder), **options}
        made.append(SpoolSupervisor(read_options(given, "source"), given))
        made[-1].ensure()
        return made[-1]

    yield start
    for supervisor in made:
        supervisor.stop()


def pid_of(spool: Spool) -> int:
    return int(spool.read_json("status.json")["pid"])


def numbers(start: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(start, end)]


def test_messages_become_rows_in_order(broker_port: int, start: Start, spool: Spool) -> None:
    start(broker_port)
    publish(broker_port, "t/1", numbers(0, 500))
    wait_until(lambda: spool.end() == 500, "500 rows")
    assert payloads_in(spool) == numbers(0, 500)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_session_goes_on_where_a_stopped_process_left_it(
    broker_port: int, start: Start, spool: Spool, version: str
) -> None:
    start(broker_port, mqttVersion=version).stop()
    publish(broker_port, "t/1", numbers(0, 50))
    assert spool.end() == 0
    start(broker_port, mqttVersion=version)
    wait_until(lambda: spool.end() == 50, "50 rows")
    assert payloads_in(spool) == numbers(0, 50)


def test_a_process_that_is_stopped_at_work_leaves_no_doubles(
    tidegate_broker: BrokerThread, start: Start, spool: Spool
) -> None:
    port = tidegate_broker.port
    supervisor = start(port, segmentSeconds="0.01")
    with ThreadPoolExecutor(1) as thread:
        publishing = thread.submit(publish, port, "t/1", numbers(0, 2000))
        wait_until(lambda: spool.end() > 0, "a first row")
        supervisor.stop()
        start(port)
        publishing.result(DEADLINE)
    wait_until(lambda: spool.end() >= 2000, "2000 rows")
    assert payloads_in(spool) == numbers(0, 2000)


def test_a_killed_process_loses_nothing(broker_port: int, start: Start, spool: Spool) -> None:
    supervisor = start(broker_port, segmentSeconds="3600")  # rows stay in the open file
    publish(broker_port, "t/1", numbers(0, 300))
    wait_until(lambda: spool.size_bytes() > 300 * 20, "rows on disk")
    os.kill(pid_of(spool), signal.SIGKILL)
    publish(broker_port, "t/1", numbers(300, 400))
    supervisor._process.wait()  # type: ignore[union-attr]
    supervisor.stop()
    start(broker_port)
    wait_until(lambda: set(payloads_in(spool)) == set(numbers(0, 400)), "400 different rows")
    # What was synced and not acknowledged yet came twice; first arrivals are in order.
    assert list(dict.fromkeys(payloads_in(spool))) == numbers(0, 400)


def test_a_process_ends_when_its_reader_does(
    tidegate_broker: BrokerThread, start: Start, spool: Spool
) -> None:
    supervisor = start(tidegate_broker.port)
    process = supervisor._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # all that a killed reader does
    assert process.wait(30) == 0


def test_a_full_spool_stops_taking_and_the_broker_stops_sending(start: Start, spool: Spool) -> None:
    big = [bytes([number]) * 20_000 for number in range(200)]
    # A queue that holds all of them: what is not taken waits there.
    with BrokerThread(limits=Limits(max_queued_bytes=100 << 20)) as broker:
        start(broker.port, maxSpoolBytes="200k", receiveMaximum="20")
        publish(broker.port, "t/1", big)
        wait_until(lambda: spool.size_bytes() > 200 << 10, "a full spool")
        # The bound, one batch of a Receive Maximum beyond it, and no more however long one waits.
        assert spool.size_bytes() < (200 << 10) + 21 * 20_100
        held = spool.end()
        assert held < 60
        found = payloads_in(spool)
        while len(found) < 200:
            spool.commit(spool.end())
            wait_until(lambda: bool(spool.segments()), "more rows")
            before = len(found)
            found += payloads_in(spool)
            assert len(found) > before
        assert found == big


def test_numbers_go_on_after_everything_was_committed(
    tidegate_broker: BrokerThread, start: Start, spool: Spool
) -> None:
    supervisor = start(tidegate_broker.port)
    publish(tidegate_broker.port, "t/1", numbers(0, 10))
    wait_until(lambda: spool.end() == 10, "10 rows")
    spool.commit(10)
    supervisor.stop()
    start(tidegate_broker.port)
    publish(tidegate_broker.port, "t/1", numbers(10, 15))
    wait_until(lambda: spool.end() == 15, "15 rows")
    assert spool.segments()[0].start == 10


def test_filters_that_are_no_longer_wanted_are_left(broker_port: int, start: Start, spool: Spool) -> None:
    start(broker_port, topics="t/#,other").stop()
    start(broker_port, topics="t/#")
    wait_until(lambda: spool.read_json("status.json").get("state") == "connected", "a connection")
    publish(broker_port, "other", [b"no"])
    publish(broker_port, "t/1", [b"yes"])
    wait_until(lambda: spool.end() == 1, "one row")
    assert payloads_in(spool) == [b"yes"]


def test_retained_messages_come_once(tidegate_broker: BrokerThread, start: Start, spool: Spool) -> None:
    publish(tidegate_broker.port, "t/state", [b"kept"], retain=True)
    supervisor = start(tidegate_broker.port)
    wait_until(lambda: spool.end() == 1, "the retained message")
    supervisor.stop()
    start(tidegate_broker.port)
    publish(tidegate_broker.port, "t/1", [b"next"])
    wait_until(lambda: spool.end() == 2, "the next message")
    assert payloads_in(spool) == [b"kept", b"next"]


def test_nobody_there_is_an_error_with_the_address(start: Start) -> None:
    with pytest.raises(SpoolError, match=r"mqtt://127.0.0.1:1 was not reached within 0.5 s"):
        start(1, connectTimeout="0.5")


def test_a_spool_that_cannot_be_used_is_an_error_with_a_hint(start: Start, spool: Spool) -> None:
    (spool.folder / "spool.log").mkdir(parents=True)
    with pytest.raises(SpoolError, match="cannot be used: Is a directory") as caught:
        start(1)
    assert caught.value.hint


def test_a_process_that_ends_before_it_reads_is_said_so(
    start: Start, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(SpoolError, match="ended with status 1"):
        start(1, password="x" * 200_000)  # more than a pipe holds, so that writing fails for sure


def test_half_a_batch_never_becomes_a_segment(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def tear(self: SegmentWriter, batch: pa.RecordBatch) -> None:
        self._file.write(batch.serialize().to_pybytes()[:100])
        raise OSError(28, "No space left on device")

    spool.create()
    process = SpoolProcess(read_options({"url": "localhost", "topics": "t"}, "source"), spool)
    monkeypatch.setattr(SpoolProcess, "_is_due", False)
    process._write([Message(topic="t", payload=b"kept")], 0)
    monkeypatch.setattr(SegmentWriter, "append", tear)
    with pytest.raises(OSError, match="No space"):
        process._write([Message(topic="t", payload=b"torn")], 0)
    process._finish()
    assert spool.segments() == []
    assert spool.recover() == 1
    assert payloads_in(spool) == [b"kept"]


def test_a_spool_has_one_process(tidegate_broker: BrokerThread, start: Start, spool: Spool) -> None:
    start(tidegate_broker.port)
    with pytest.raises(SpoolError, match=f"is in use by process {pid_of(spool)}"), locked(spool, seconds=0.1):
        pass


def test_a_slow_job_is_known_to_the_broker_as_a_slow_member(
    tidegate_broker: BrokerThread, start: Start, spool: Spool
) -> None:
    port = tidegate_broker.port
    start(port, group="crew")
    publish(port, "t/1", numbers(0, 50))
    wait_until(lambda: spool.end() == 50, "50 rows")
    spool.note_done(Done(50, 50, 0, 12_500_000))  # as a task does: a quarter of a second a row

    async def service_ms() -> float:
        async with asyncio.timeout(DEADLINE), Client(f"127.0.0.1:{port}") as operator:
            await operator.subscribe("$SYS/tide/groups")
            async for message in operator.messages:
                for row in json.loads(message.payload)["rows"]:
                    for member in row["members"]:
                        if member["reports"] and member["service_ms"] >= 200.0:
                            return float(member["service_ms"])
        raise AssertionError

    assert asyncio.run(service_ms()) == pytest.approx(250.0, rel=0.2)
