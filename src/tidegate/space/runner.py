"""Runs queries that can be stopped.

The store has no way to interrupt a query, and SPARQL can ask for work without end in a few words. So a query runs in
a child made by fork: it sees the triples as they were at that moment, shares their memory, and can be killed. A text
that was quick before is asked in a thread instead, which saves the fork; the store lets go of the interpreter while it
works. Only what stays within bounds whatever arrives is given a name for that, see `trust`. Such threads are few, and
one that takes too long all the same cannot be stopped: until it has ended, everything is forked. Forks happen in the
thread that changes the store, so never in the midst of a change; those whose child writes, when no thread reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Final, TypeAlias, TypeVar

from tidegate.space.errors import Fault, SpaceError
from tidegate.space.gate import Gate
from tidegate.space.store import Torn, too_slow
from tidegate.space.trust import GROWTH

Job: TypeAlias = Callable[[BinaryIO], None]
"""Writes its answer; raises `SpaceError`. Must change nothing but its own copy of the store."""

QUICK: Final = 0.02  # seconds that make a query one for a thread
REMEMBERED: Final = 4096  # texts
MEMORY: Final = 2 * 1024**3  # bytes that a child may take beyond what it inherits
STACK: Final = 16 * 1024 * 1024  # bytes for threads that parse: what `bounds` lets through was tried with half of it
_OK, _ERROR = b"+", b"-"
_T = TypeVar("_T")


class Runner:
    """`seconds` is the longest any job may take, `max_bytes` the most it may answer, `quick` what makes one quick."""

    def __init__(self, *, seconds: float, max_bytes: int, workers: int = 4, quick: float = QUICK) -> None:
        self.seconds = seconds
        self._quick_seconds = quick
        self.max_bytes = max_bytes
        self._quick: OrderedDict[bytes, int] = OrderedDict()  # by digest: texts may be long
        threading.stack_size(STACK)  # of all threads from here on; it is taken only as far as it is used
        self._threads = ThreadPoolExecutor(workers, "tidegate-query")
        self._waits = ThreadPoolExecutor(workers, "tidegate-wait")
        self._gates: dict[int, Gate] = {}
        self._late = 0  # threads that took too long and are still at it
        self.forked = 0
        self.in_thread = 0
        self.killed = 0

    async def run(
        self,
        name: str,
        size: int,
        job: Job,
        *,
        of: object = None,
        seconds: float | None = None,
        is_writing: bool = False,
    ) -> bytes:
        """The answer of a job; raises `SpaceError`.

        `name` tells jobs of the same cost, `size` is that of the store, which is `of`. A job without a name is never
        run in a thread. One that is writing changes its copy of the store, and must have none.
        """
        gate = self._gate(of)
        key = hashlib.sha256(name.encode()).digest()
        known = self._quick.get(key) if name and not is_writing else None
        is_trusted = known is not None and size <= known * GROWTH
        if is_trusted and self._late == 0 and not gate.is_wanted:
            self._quick.move_to_end(key)
            return await self._in_thread(key, job, gate)
        if is_writing:
            await gate.empty(self.seconds)  # from here to the fork nothing waits
        began = time.monotonic()
        answer = await self._in_child(job, self.seconds if seconds is None else seconds)
        if name and time.monotonic() - began < self._quick_seconds + 1e-8 * size:  # a fork takes time by itself
            self._quick[key] = size
            if len(self._quick) > REMEMBERED:
                self._quick.popitem(last=False)
        return answer

    async def beside(self, of: object, work: Callable[[], _T]) -> _T:
        """Something that reads a store and ends by itself, in a thread."""
        gate = self._gate(of)
        await gate.open()
        gate.enter()
        reading = asyncio.get_running_loop().run_in_executor(None, work)
        reading.add_done_callback(lambda done: _leave(gate, done))
        return await asyncio.shield(reading)  # who gives up does not stop the thread

    def _gate(self, of: object) -> Gate:
        return self._gates.setdefault(id(of), Gate())

    async def _in_thread(self, key: bytes, job: Job, gate: Gate) -> bytes:
        self.in_thread += 1
        gate.enter()
        work = asyncio.get_running_loop().run_in_executor(self._threads, _bounded, job, self.max_bytes)
        work.add_done_callback(lambda done: _leave(gate, done))
        done, _ = await asyncio.wait([work], timeout=self.seconds)
        if done:
            try:
                return work.result()
            except Torn:
                return await self._in_child(job, self.seconds)
        # The thread goes on to its end, which is finite; but this text is not trusted again so easily.
        self._quick.pop(key, None)
        self.killed += 1
        self._late += 1
        gate.late += 1
        work.add_done_callback(lambda _: self._on_late(gate))
        raise too_slow(self.seconds)

    def _on_late(self, gate: Gate) -> None:
        self._late -= 1
        gate.late -= 1

    async def _in_child(self, job: Job, seconds: float) -> bytes:
        read_end, write_end, pid = _fork(job, seconds)
        self.forked += 1
        os.close(write_end)
        is_over = False
        try:
            async with asyncio.timeout(seconds):
                answer = await self._read(read_end)
            is_over = True
        except TimeoutError:
            self.killed += 1
            raise too_slow(seconds) from None
        finally:
            os.close(read_end)
            if not is_over:
                _kill(pid)
            # Short: it has said all it has to say, or is dead.
            waiting = asyncio.get_running_loop().run_in_executor(self._waits, os.waitpid, pid, 0)
            status = await asyncio.shield(waiting)
        return _open(answer, status[1])

    async def _read(self, descriptor: int) -> bytes:
        loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                part = os.read(descriptor, 1 << 18)
            except BlockingIOError:
                ready = loop.create_future()
                loop.add_reader(descriptor, _wake, ready)
                try:
                    await ready
                finally:
                    loop.remove_reader(descriptor)
                continue
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > self.max_bytes:
                raise too_large(self.max_bytes)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        self._waits.shutdown(wait=False)

    @property
    def has_late_threads(self) -> bool:
        return self._late > 0

    def statistics(self) -> dict[str, int]:
        return {"forked": self.forked, "in_thread": self.in_thread, "killed": self.killed}


def _leave(gate: Gate, work: asyncio.Future[_T]) -> None:
    gate.leave()
    if not work.cancelled():
        work.exception()  # there may be nobody who waits for it any more


def _fork(job: Job, seconds: float) -> tuple[int, int, int]:
    """Both ends of a pipe, and the child that writes to it; raises `SpaceError` if the system has no room for it."""
    ends: tuple[int, ...] = ()
    try:
        ends = os.pipe()
        pid = os.fork()
    except OSError as error:
        for end in ends:
            os.close(end)
        raise SpaceError(
            Fault.BUSY, f"no process can be started: {error.strerror}", hint="try again later", retry_after=1.0
        ) from None
    if pid == 0:
        _child(job, ends[1], seconds)
    return ends[0], ends[1], pid


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # not waited for yet, so this cannot be anybody else; it is just over


def _child(job: Job, write_end: int, seconds: float) -> None:
    """Never returns. Nothing here may wait for a lock that a thread of the parent held."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Connections of the parent must end when the parent ends them.
        os.dup2(write_end, 3)
        os.closerange(4, 1 << 16)
        taken = int(open("/proc/self/statm", "rb").read().split()[0]) * resource.getpagesize()  # noqa: SIM115, PTH123
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))  # a query that got past all checks opens no connection
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, int(seconds) + 2))
        with os.fdopen(3, "wb", buffering=1 << 16) as output:
            first = _First(output)
            error = _in_fresh_thread(job, first)
            if isinstance(error, SpaceError) and not first.is_begun:
                fields = {"fault": error.fault, "text": str(error), "hint": error.hint}
                output.write(_ERROR + json.dumps(fields).encode())
            elif error is not None:
                raise error  # nothing or half an answer, and an exit code that says so
        code = 0
    finally:
        os._exit(code)


def _in_fresh_thread(job: Job, output: _First) -> BaseException | None:
    """What the job raised. Random numbers are drawn thread by thread: this one would draw what its siblings draw."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            job(output)  # type: ignore[arg-type]
            output.write(b"")
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            raised.append(error)

    threading.stack_size(STACK)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return raised[0] if raised else None


class _First:
    """Puts the mark before the first byte; an error before that can still be told."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self.is_begun = False

    def write(self, data: bytes) -> int:
        if not self.is_begun:
            self.is_begun = True
            self._output.write(_OK)
        return self._output.write(data)

    def flush(self) -> None:
        self._output.flush()


class _Buffer:
    """Collects up to a size, for jobs in a thread."""

    def __init__(self, max_bytes: int) -> None:
        self.parts: list[bytes] = []
        self._left = max_bytes
        self._max_bytes = max_bytes

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._max_bytes)
        self.parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


def _bounded(job: Job, max_bytes: int) -> bytes:
    buffer = _Buffer(max_bytes)
    job(buffer)  # type: ignore[arg-type]
    return b"".join(buffer.parts)


def _open(answer: bytes, status: int) -> bytes:
    if answer.startswith(_OK) and status == 0:
        return answer[1:]
    if answer.startswith(_ERROR):
        fields = json.loads(answer[1:])
        raise SpaceError(Fault(fields["fault"]), fields["text"], hint=fields["hint"])
    raise SpaceError(
        Fault.TOO_LARGE, "the query needs more memory or processor time than allowed", hint="ask for less"
    )


def too_large(max_bytes: int) -> SpaceError:
    return SpaceError(
        Fault.TOO_LARGE, f"the answer is larger than {max_bytes} bytes", hint="add a LIMIT, or ask for less"
    )
