"""Traces: hops written to files, one JSON line each, and put together again for one request.

`TraceFile` is an observer with a thread of its own, so that no hop waits for a disk; it is bounded, and what does not
fit is counted. Every process writes its own file into one folder; `find` reads them all.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.private import make_folder, opener
from tidegate.rpc.errors import RpcError
from tidegate.rpc.telemetry import Beacon, Hop, Step

log = logging.getLogger(__name__)

SUFFIX = ".trace.jsonl"


class TraceFile:
    """Appends hops to `folder/part.trace.jsonl`; of requests, the share `sample` (chosen by key, the same for all)."""

    def __init__(self, folder: Path, part: str, *, sample: float = 1.0, size: int = 100_000) -> None:
        self.path = folder / f"{part}{SUFFIX}"
        self.dropped = 0
        self._sample = sample
        self._queue: queue.Queue[Hop | None] = queue.Queue(size)
        try:
            make_folder(folder)
            self._file = open(self.path, "a", encoding="utf-8", opener=opener)  # noqa: SIM115 - the thread closes it
        except OSError as error:
            raise RpcError(
                f"{self.path}: {error.strerror}", hint="give a folder that can be written"
            ) from None
        self._thread = threading.Thread(target=self._write, name="tidegate rpc trace", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on_hop(self, hop: Hop) -> None:
        # Hops without a key (back routers) are kept: who looks for the request knows its correlation.
        if self._sample < 1.0 and hop.key and not is_sampled(hop.key, self._sample):
            return
        try:
            self._queue.put_nowait(hop)
        except queue.Full:
            self.dropped += 1

    def on_beacon(self, beacon: Beacon) -> None:
        """Advertisements belong to no request."""

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(10.0)
        try:
            self._file.close()
        except OSError as error:  # what it still had cannot be written either
            log.warning("a trace is not whole", extra={"path": str(self.path), "error": str(error)})

    def _write(self) -> None:
        while (hop := self._queue.get()) is not None:
            lines = [_encode(hop)]
            is_over = False
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    is_over = True
                    break
                lines.append(_encode(more))
            try:
                self._file.writelines(lines)
                self._file.flush()
            except OSError as error:
                if not self.dropped:
                    log.warning("hops are dropped", extra={"path": str(self.path), "error": str(error)})
                self.dropped += len(lines)
            if is_over:
                return


def is_sampled(key: str, share: float) -> bool:
    """The same answer in every process."""
    from zlib import crc32

    return crc32(key.encode()) < share * 0x1_0000_0000


def _encode(hop: Hop) -> str:
    return json.dumps(hop._asdict(), separators=(",", ":")) + "\n"


@dataclass(slots=True)
class Trace:
    """One request: its hops in the order of time."""

    key: str
    hops: list[Hop] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.hops[-1].at - self.hops[0].at if self.hops else 0.0

    def times(self) -> dict[str, float]:
        """First moment of each step."""
        first: dict[str, float] = {}
        for hop in self.hops:
            first.setdefault(hop.step, hop.at)
        return first

    def record(self) -> dict[str, Any]:
        """The event record of spec 4, as far as its hops are known."""
        times = self.times()
        last = self.hops[-1]
        return {
            "task_id": next((hop.task for hop in self.hops if hop.task), ""),
            "request_id": self.key,
            "mac": next((hop.device for hop in self.hops if hop.device), ""),
            "gw": next((hop.gateway for hop in self.hops if hop.gateway), ""),
            "t_enqueued": times.get(Step.ENQUEUED),
            "t_worker": times.get(Step.WORKER, times.get(Step.CALL)),
            "t_fwd": times.get(Step.FORWARD),
            "t_mqtt": times.get(Step.PUBLISHED),
            "t_gw": times.get(Step.GATEWAY),
            "t_bck": times.get(Step.BACK),
            "t_reply": times.get(Step.REPLY),
            "outcome": last.outcome,
            "attempt": max(hop.attempt for hop in self.hops),
        }


def assemble(hops: Iterable[Hop]) -> dict[str, Trace]:
    """Traces by key. A task's own hops join every request that was made for it."""
    traces: dict[str, Trace] = {}
    key_of: dict[str, str] = {}
    nameless: list[Hop] = []
    tasks: dict[str, list[Hop]] = {}
    for hop in hops:
        if hop.step in (Step.ENQUEUED, Step.WORKER):
            tasks.setdefault(hop.task, []).append(hop)
            continue
        if hop.correlation and hop.key:
            key_of[hop.correlation] = hop.key
        if hop.key:
            traces.setdefault(hop.key, Trace(hop.key)).hops.append(hop)
        else:
            nameless.append(hop)
    for hop in nameless:
        key = key_of.get(hop.correlation)
        if key is not None and key in traces:
            traces[key].hops.append(hop)
    for trace in traces.values():
        task = next((hop.task for hop in trace.hops if hop.task), "")
        trace.hops += tasks.get(task, []) if task else []
        trace.hops.sort(key=lambda hop: (hop.at, list(Step).index(hop.step)))
    return traces


def read(folder: Path) -> Iterator[Hop]:
    """All hops below a folder; a last line that is half written is left out."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise RpcError(f"there are no traces in {folder}", hint="start the parts with --trace DIR first")
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                yield Hop(**{**row, "step": Step(row["step"])})
            except (ValueError, TypeError, KeyError):
                continue


def find(folder: Path, request_id: str) -> Trace:
    """One request, by its id or the beginning of it, or by its task's; raises `RpcError`."""
    traces = assemble(read(folder))
    found = [trace for key, trace in traces.items() if key.startswith(request_id)]
    if not found:
        found = [trace for trace in traces.values() if any(hop.task == request_id for hop in trace.hops)]
    if not found:
        known = ", ".join(list(traces)[-3:])
        raise RpcError(f"no trace of {request_id!r}", hint=f"the latest are {known}" if known else "")
    if len(found) > 1 and request_id not in traces:
        names = ", ".join(trace.key for trace in found[:5])
        raise RpcError(f"{len(found)} requests begin with {request_id!r}", hint=f"give more of one: {names}")
    return traces.get(request_id) or found[0]
