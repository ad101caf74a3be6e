"""The space broker as a process: commands, and kill -9 under load."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from random import Random
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.resilience.support import wait_until
from tidegate.broker.flow_settings import Backoff, FlowSettings
from tidegate.client import Client, ClientError
from tidegate.flow.timeout import FixedTimeout
from tidegate.space.errors import SpaceError
from tidegate.space.knowledge import Space
from tidegate.testing import BrokerThread

SPACE = [sys.executable, "-m", "tidegate", "space"]
ALL = "SELECT ?s ?o WHERE { ?s <urn:p> ?o }"
JOIN = "SELECT DISTINCT ?o WHERE { ?s <urn:p> ?o . ?s <urn:q> ?o }"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s <urn:p> ?o }"


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tidegate space serve`, and the line it said."""
    with subprocess.Popen(
        [*SPACE, "serve", "--log-level", "warning", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(20)


def command(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPACE, *arguments], capture_output=True, text=True, timeout=60, check=False, input=text
    )


def test_serve_update_query_watch(tmp_path: Path) -> None:
    with BrokerThread() as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        arguments = ("-s", "home", "--url", url, "--http-port", "0", "--data", str(tmp_path / "data"))
        with serving(*arguments) as (process, line):
            assert re.match(r"tidegate space ready on http://127.0.0.1:\d+/<space>/sparql and mqtt://", line)
            at = ("--url", url, "-s", "home")
            done = command("update", "INSERT DATA { <urn:a> <urn:p> 1 }", *at)
            assert json.loads(done.stdout) == {"version": 1, "added": 1, "removed": 0}
            (tmp_path / "more.ttl").write_text("<urn:a> <urn:p> 2 .")
            assert command("update", "--insert", str(tmp_path / "more.ttl"), *at).returncode == 0
            done = command("query", "-", "--accept", "text/csv", *at, text=f"{ALL} ORDER BY ?o")
            assert done.stdout.splitlines() == ["s,o", "urn:a,1", "urn:a,2"]
            with subprocess.Popen(
                [*SPACE, "watch", ALL, "--count", "2", *at], stdout=subprocess.PIPE, text=True
            ) as watch:
                assert watch.stdout is not None
                first = json.loads(watch.stdout.readline())
                assert (first["event"], first["version"], len(first["rows"])) == ("answer", 2, 2)
                asyncio.run(_send(url, "INSERT DATA { <urn:b> <urn:p> 3 }", "DELETE WHERE { <urn:a> <urn:p> ?o }"))
                changes = [json.loads(watch.stdout.readline()) for _ in range(2)]
                assert [(each["number"], each["version"]) for each in changes] == [(1, 3), (2, 4)]
                assert len(changes[1]["removed"]) == 2
                assert watch.wait(20) == 0
            done = command("query", "SELECT", *at)
            assert done.returncode == 1
            assert done.stderr.startswith("error: not SPARQL")
            assert "hint:" in done.stderr
            done = command("query", ALL, "--url", url, "-s", "nowhere")
            assert done.stderr.splitlines()[0] == "error: nobody serves space 'nowhere'"
            assert "tidegate space serve --space nowhere" in done.stderr
            done = command("serve", "-s", "home", "--url", url)
            assert done.returncode == 3
            assert "space 'home' is served by somebody else" in done.stderr
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


async def _send(url: str, *updates: str) -> None:
    async with Client(url) as client:
        for update in updates:
            await Space(client, "home", timeout=30.0).update(update)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--no-mqtt",), "--http-port"),
        (("--no-mqtt", "--http-port", "0", "--http-host", "0.0.0.0"), "--rights"),
        (("--no-mqtt", "--http-port", "0", "-s", "a/b"), "letters"),
        (("--no-mqtt", "--http-port", "0", "--rights", "/nowhere.toml"), "docs/space.md"),
    ],
)
def test_what_cannot_be_served_is_two_lines(arguments: tuple[str, ...], hint: str) -> None:
    done = command("serve", *arguments)
    assert done.returncode == 3
    error, second = done.stderr.strip().splitlines()
    assert error.startswith("error: ")
    assert hint in second


def test_hangup_reads_the_rights_again_and_keeps_them_if_they_make_no_sense(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    rights.write_text('[spaces.home]\nread = ["*"]\n')
    arguments = ("-s", "home", "--no-mqtt", "--http-port", "0", "--rights", str(rights), "--log-level", "info")

    def status(base: str) -> int:
        request = Request(f"{base}/home/data", data=b"<urn:a> <urn:p> 1 .", headers={"Content-Type": "text/turtle"})
        try:
            with urlopen(request, timeout=10.0) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    with serving(*arguments) as (process, line):
        base = line.split(" on ")[1].split("/<space>")[0]
        assert status(base) == 403
        rights.write_text('[spaces.home]\nread = ["*"]\nwrite = ["*"]\n')
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: status(base) == 200, "the new rights")
        rights.write_text("nonsense")
        process.send_signal(signal.SIGHUP)
        assert status(base) == 200
        assert process.poll() is None


def test_a_broker_that_holds_whom_it_can_does_not_hold_the_space_on_its_machine() -> None:
    with BrokerThread(flow=FlowSettings(backoff=Backoff(always=True, floor_rate=0.0, d_max=5.0))) as broker:

        def excused() -> list[float]:
            gate = broker.broker.core.gate
            assert gate is not None
            return [
                gate.excused_seconds(conn)
                for conn in broker.broker.core.connections
                if conn.session.client_id.startswith("tide-") and gate.excused_seconds(conn)
            ]

        broker.operator_socket()  # as a node has it
        with serving("-s", "home", "--url", f"mqtt://127.0.0.1:{broker.port}") as (_, line):
            assert "ready" in line
            wait_until(lambda: len(broker.call(excused)) == 1, "the space is not to be held")
            assert broker.call(excused)[0] > 3000.0


def test_a_token_and_its_line() -> None:
    from tidegate.space.rights import digest_of

    done = command("token")
    assert digest_of(done.stdout.strip()) in done.stderr


async def _updates(url: str, number: int, acknowledged: dict[str, int], stop: asyncio.Event) -> None:
    """One update after the other; what is not acknowledged may or may not be there."""
    random = Random(number)
    count = 0
    async with Client(url, reconnect=True) as client:
        space = Space(client, "home", timeout=1.0)
        while not stop.is_set():
            count += 1
            text = f"INSERT DATA {{ <urn:c{number}> <urn:p> {count} }}"
            if random.random() < 0.3:
                text += f" ; INSERT DATA {{ <urn:c{number}> <urn:q> {count} }}"
                text += f" ; DELETE DATA {{ <urn:c{number}> <urn:q> {random.randrange(count)} }}"
            try:
                acknowledged[f"urn:c{number} {count}"] = await space.update(text)
            except (SpaceError, ClientError):
                await asyncio.sleep(0.02)


class _Follower:
    """Takes the changes of one watch and keeps what they amount to."""

    def __init__(self, space: Space, text: str) -> None:
        self.text = text
        self.watch = space.watch(text, policy=FixedTimeout(0.3))
        self.seen: Counter[tuple[object, ...]] = Counter()
        self.numbers: list[int] = []
        self.versions: list[int] = []

    async def run(self) -> None:
        async for change in self.watch:
            self.numbers.append(change.number)
            self.versions.append(change.version)
            self.seen.update(change.added)
            self.seen.subtract(change.removed)

    def check(self) -> None:
        assert self.watch.resets == 0
        assert self.numbers == list(range(1, len(self.numbers) + 1))
        assert self.versions == sorted(set(self.versions))


async def _survive(url: str, data: Path, kills: int) -> None:
    acknowledged: dict[str, int] = {}
    snapshots: set[str] = set()
    stop = asyncio.Event()
    arguments = ("-s", "home", "--url", url, "--data", str(data), "--snapshot-bytes", "1500")

    def has_done(updates: int, more: int) -> bool:
        snapshots.update(path.name for path in data.glob("home/snapshot-*"))
        return len(acknowledged) >= updates and len(snapshots) >= more

    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(url, reconnect=True))
        with serving(*arguments) as (process, _):
            # Watches begin with an empty space; the writers start after them.
            followers = [_Follower(Space(client, "home", timeout=2.0), text) for text in (ALL, JOIN, COUNT)]
            for each in followers:
                await stack.enter_async_context(each.watch)
                each.seen.update(each.watch.rows)
            following = [tasks.create_task(each.run()) for each in followers]
            writing = [tasks.create_task(_updates(url, lane, acknowledged, stop)) for lane in range(4)]
            await _until(lambda: has_done(30, 1))
            process.kill()
            process.wait()
        for kill in range(1, kills + 1):
            updates, more = len(acknowledged) + 30, len(snapshots) + 1
            with serving(*arguments) as (process, _):
                await _until(lambda updates=updates, more=more: has_done(updates, more))
                if kill < kills:
                    process.kill()
                    process.wait()
                    continue
                stop.set()
                await asyncio.wait(writing)
                space = Space(client, "home", timeout=30.0)
                for each in followers:
                    answer = Counter((await space.query(each.text)).rows)
                    await _until(lambda each=each, answer=answer: +each.seen == answer)
                    each.check()
                    if each.text == ALL:
                        stored = {f"{row[0].value} {row[1].value}" for row in answer}
                        assert set(acknowledged) <= stored
                for task in following:
                    task.cancel()


async def _until(condition: object, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)


def test_killed_under_load_nothing_acknowledged_is_lost_and_watchers_miss_nothing(tmp_path: Path) -> None:
    with BrokerThread() as broker:
        asyncio.run(_survive(f"mqtt://127.0.0.1:{broker.port}", tmp_path / "data", kills=4))
