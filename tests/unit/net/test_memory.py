import asyncio

import pytest

from tests.integration.net.peers import Echo, Recorder
from tidegate.net.memory import memory_pair


def run(main) -> None:
    async def bounded():
        async with asyncio.timeout(10):
            await main

    asyncio.run(bounded())


def test_bytes_cross_in_a_later_turn_joined_and_in_order():
    async def main():
        a, b = Recorder(), Recorder()
        left, right = memory_pair(a, b)
        assert (a.link, b.link) == (left, right)
        left.write(b"one")
        left.writelines([b"two", memoryview(b"three")])
        assert b.received == b""
        await b.wait_received(11)
        assert b.chunks == [b"onetwothree"]
        right.write(b"back")
        await a.wait_received(4)
        assert left.get_extra_info("peername") == right.get_extra_info("sockname")

    run(main())


def test_no_chunk_is_larger_than_asked_for():
    async def main():
        a, b = Recorder(), Recorder()
        left, _ = memory_pair(a, b, chunk_bytes=3)
        left.write(b"abcdefgh")
        left.close()
        await b.wait_lost()
        assert b.chunks == [b"abc", b"def", b"gh"]
        with pytest.raises(ValueError):
            memory_pair(a, b, chunk_bytes=0)

    run(main())


def test_close_delivers_what_was_written_and_ends_both_sides():
    async def main():
        a, b = Recorder(), Recorder()
        left, right = memory_pair(a, b)
        left.write(b"last words")
        left.close()
        left.write(b"too late")
        assert left.is_closing()
        await a.wait_lost()
        await b.wait_lost()
        assert b.received == b"last words"
        assert (a.lost, b.lost, b.eofs, a.eofs) == ([None], [None], 1, 0)
        assert right.is_closing()

    run(main())


def test_closing_both_ends_at_once_loses_each_exactly_once():
    async def main():
        a, b = Recorder(), Recorder()
        left, right = memory_pair(a, b)
        left.close()
        right.close()
        await a.wait_lost()
        await b.wait_lost()
        left.abort()
        await _turns()
        assert (a.lost, b.lost, a.eofs, b.eofs) == ([None], [None], 0, 0)

    run(main())


async def _turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_abort_drops_what_was_written_and_resets_the_peer():
    async def main():
        a, b = Recorder(), Recorder()
        left, _ = memory_pair(a, b)
        left.write(b"never seen")
        left.abort()
        await a.wait_lost()
        await b.wait_lost()
        await _turns()
        assert (a.lost, b.received, b.eofs, len(b.lost)) == ([None], b"", 0, 1)
        assert isinstance(b.lost[0], ConnectionResetError)

    run(main())


def test_writer_is_paused_above_the_high_mark_and_resumed_below_the_low_one():
    async def main():
        a, b = Recorder(), Recorder()
        left, right = memory_pair(a, b, chunk_bytes=10)
        left.set_write_buffer_limits(high=50, low=20)
        assert left.get_write_buffer_limits() == (20, 50)
        right.pause_reading()
        left.write(b"x" * 50)
        assert a.writing_pauses == 0
        left.write(b"x")
        assert (a.writing_pauses, left.get_write_buffer_size()) == (1, 51)
        await _turns()
        assert b.received == b""
        right.resume_reading()
        await a.wait_until(lambda: a.writing_resumes == 1)
        assert left.get_write_buffer_size() <= 20
        await b.wait_received(51)
        assert (a.writing_pauses, a.writing_resumes) == (1, 1)
        with pytest.raises(ValueError):
            left.set_write_buffer_limits(high=1, low=2)

    run(main())


def test_paused_reader_learns_of_the_end_when_it_reads_again():
    async def main():
        a, b = Recorder(), Recorder()
        left, right = memory_pair(a, b)
        right.pause_reading()
        left.close()
        await a.wait_lost()
        await _turns()
        assert not b.lost
        right.resume_reading()
        await b.wait_lost()
        assert (b.eofs, b.lost) == (1, [None])

    run(main())


def test_half_closed_end_still_gets_its_answer():
    class Answers(Recorder):
        def eof_received(self) -> bool:
            super().eof_received()
            self.link.write(b"answer")
            return True

    async def main():
        a, b = Recorder(), Answers()
        left, right = memory_pair(a, b)
        assert left.can_write_eof()
        left.write(b"question")
        left.write_eof()
        with pytest.raises(RuntimeError):
            left.write(b"more")
        await a.wait_received(6)
        assert not b.lost
        right.close()
        await a.wait_lost()
        await b.wait_lost()
        assert (a.received, a.eofs, b.eofs) == (b"answer", 1, 1)

    run(main())


def test_megabyte_echoed_in_odd_chunks_comes_back_whole():
    async def main():
        a, b = Recorder(), Echo()
        left, _ = memory_pair(a, b, chunk_bytes=7919)
        data = bytes(range(256)) * 4096
        left.write(data)
        await a.wait_received(len(data))
        assert a.received == data
        left.close()
        await b.wait_lost()

    run(main())
