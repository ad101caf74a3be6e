"""The spool's files: what is visible, what survives, what is deleted."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.client import Message
from tidegate.spark.batches import to_batch
from tidegate.spark.errors import SpoolError
from tidegate.spark.segments import Done, Segment, SegmentWriter, Spool


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(tmp_path / "spool")
    made.create()
    return made


def batch(first: int, rows: int) -> pa.RecordBatch:
    return to_batch([Message(topic="t", payload=str(first + i).encode()) for i in range(rows)], 0)


def write(spool: Spool, start: int, *rows: int) -> SegmentWriter:
    writer = SegmentWriter(spool, start)
    for number in rows:
        writer.append(batch(writer.start + writer.rows, number))
    return writer


def payloads(spool: Spool, start: int, end: int) -> list[int]:
    found: list[int] = []
    for segment, first, last in spool.slices(start, end):
        for part in spool.read(segment, first, last, chunk_rows=7):
            assert part.num_rows <= 7
            found += map(int, part.column("payload").to_pylist())
    return found


def test_a_segment_is_visible_when_it_is_finished(spool: Spool) -> None:
    writer = write(spool, 0, 3, 4)
    assert (spool.segments(), spool.end()) == ([], 0)
    assert writer.finish() == Segment(0, 7)
    assert (spool.segments(), spool.end()) == ([Segment(0, 7)], 7)


def test_rows_are_read_by_number_across_segments(spool: Spool) -> None:
    for start, rows in ((0, 10), (10, 20), (30, 5)):
        write(spool, start, rows).finish()
    assert payloads(spool, 0, 35) == list(range(35))
    assert payloads(spool, 8, 31) == list(range(8, 31))
    assert payloads(spool, 12, 13) == [12]
    assert payloads(spool, 5, 5) == []


def test_commit_deletes_what_is_done_and_numbers_go_on(spool: Spool) -> None:
    for start in (0, 10, 20):
        write(spool, start, 10).finish()
    spool.commit(15)
    assert spool.segments() == [Segment(10, 10), Segment(20, 10)]
    assert payloads(spool, 15, 30) == list(range(15, 30))
    spool.commit(30)
    spool.commit(20)  # a late one changes nothing
    assert (spool.segments(), spool.end(), spool.committed) == ([], 30, 30)


def test_missing_rows_are_named(spool: Spool) -> None:
    write(spool, 10, 10).finish()
    for start, end in ((0, 15), (10, 21), (30, 31)):
        with pytest.raises(SpoolError, match="are not in the spool"):
            spool.slices(start, end)


def test_a_segment_elsewhere_is_an_error_with_a_hint(spool: Spool) -> None:
    with pytest.raises(SpoolError) as caught:
        list(spool.read(Segment(0, 1), 0, 1, chunk_rows=1))
    assert "driver and executors share" in caught.value.hint


@pytest.mark.parametrize("cut", [0, 1, 100, 10_000])
def test_what_was_synced_before_a_crash_becomes_a_segment(spool: Spool, cut: int) -> None:
    write(spool, 0, 5).finish()
    writer = write(spool, 5, 6)
    synced = writer.size_bytes
    writer.append(batch(11, 50))
    writer._file.close()  # as the kernel does for a process that was killed
    path = spool.folder / f"_open-{5:020d}.arrow"
    path.write_bytes(path.read_bytes()[: synced + cut])
    expected = 56 if cut == 10_000 else 6
    assert Spool(spool.folder).recover() == expected
    assert spool.segments() == [Segment(0, 5), Segment(5, expected)]
    assert payloads(spool, 0, 5 + expected) == list(range(5 + expected))
    assert [path.name for path in spool.folder.glob("_*")] == []


def test_an_open_file_without_a_whole_row_is_removed(spool: Spool) -> None:
    (spool.folder / f"_open-{0:020d}.arrow").write_bytes(b"\xff\xff")
    assert spool.recover() == 0
    assert list(spool.folder.glob("*.arrow")) == []


def test_properties_of_messages_are_kept(spool: Spool) -> None:
    from tidegate.client import Property

    rich = Message(
        topic="t",
        payload=b"x",
        qos=1,
        retain=True,
        properties={
            Property.CONTENT_TYPE: "text/plain",
            Property.CORRELATION_DATA: b"\0\1",
            Property.USER_PROPERTY: [("a", "1"), ("a", "2")],
        },
    )
    rows = to_batch([Message(topic="t", payload=b""), rich], 1_000_000).to_pylist()
    assert rows[0]["user_properties"] is None
    assert rows[1]["content_type"] == "text/plain"
    assert rows[1]["correlation_data"] == b"\0\1"
    assert rows[1]["user_properties"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    assert (rows[1]["qos"], rows[1]["retain"]) == (1, True)
    assert rows[1]["received"].isoformat() == "1970-01-01T00:00:01+00:00"


def test_what_tasks_note_is_taken_once(spool: Spool) -> None:
    spool.note_done(Done(100, 40, 5, 9))
    assert spool.take_done() == [Done(100, 40, 5, 9)]
    assert spool.take_done() == []


def test_a_spool_that_is_not_here_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="cannot be read") as caught:
        Spool(tmp_path / "elsewhere").slices(0, 1)
    assert "driver and executors share" in caught.value.hint


@pytest.mark.parametrize("name", ["committed", "identity.json"])
def test_a_damaged_file_is_named(spool: Spool, name: str) -> None:
    (spool.folder / name).write_text("{")
    with pytest.raises(SpoolError, match=f"{name} cannot be read"):
        spool.end() if name == "committed" else spool.read_json(name)


def test_a_damaged_segment_is_named(spool: Spool) -> None:
    segment = write(spool, 0, 5).finish()
    path = spool.folder / segment.name
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SpoolError, match="is damaged"):
        list(spool.read(segment, 0, 5, chunk_rows=5))


def test_a_commit_that_cannot_be_written_is_said_with_a_hint(spool: Spool) -> None:
    (spool.folder / f".committed.{os.getpid()}").mkdir()
    with pytest.raises(SpoolError, match="cannot be written to") as caught:
        spool.commit(1)
    assert caught.value.hint == "is the disk full?"
