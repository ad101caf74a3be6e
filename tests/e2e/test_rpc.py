"""`tidegate rpc` as a user types it: real processes, one line when they are up, one clear line for what is wrong."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from tidegate.cli.main import main
from tidegate.cli.status import ExitStatus
from tidegate.client import Client
from tidegate.lab.rpc.world import ENVIRONMENT, World
from tidegate.rpc import Options, load_types
from tidegate.rpc.recording import Announcer
from tidegate.rpc.telemetry import Hop, Step
from tidegate.testing.ports import free_port

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
LABEL = "0123456789ab"


def tidegate(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", "rpc", *map(str, arguments)]
    return subprocess.run(
        command, env=CLEAN | environ, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World("mqtt") as running:
        yield running


@pytest.fixture(scope="module")
def url(world: World, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A whole backbone, tracing into a folder."""
    traces = tmp_path_factory.mktemp("traces")
    os.environ["RPC_TRACES"] = str(traces)
    parts = [world.part("gateway"), world.part("router"), world.part("worker")]
    for part in parts:
        at = part.command.index("rpc") + 1
        part.command[at:at] = ["--trace", str(traces), "--telemetry"]
    world.start(*parts, world.part("record", "--to", traces / "rows"))
    return f"mqtt://127.0.0.1:{world.port}"


def test_a_call_from_the_command_line_and_its_trace(url: str) -> None:
    traces = os.environ["RPC_TRACES"]
    done = tidegate("--url", url, "--trace", traces, "call", LABEL, "image", "price=1.99", "--json")
    assert done.returncode == ExitStatus.OK, done.stderr
    result = json.loads(done.stdout)
    assert (result["outcome"], result["device"]) == ("ack", LABEL)
    times: dict[str, float] = {}
    deadline = time.monotonic() + 20.0
    while len(times) < 6 and time.monotonic() < deadline:  # the other processes write a moment later
        record = json.loads(tidegate("trace", result["request_id"], "--from", traces, "--json").stdout)
        times = {name: value for name, value in record.items() if name.startswith("t_") and value is not None}
    assert record["mac"] == LABEL and record["outcome"] == "ack"
    assert times["t_worker"] <= times["t_fwd"] <= times["t_gw"] <= times["t_bck"] <= times["t_reply"]
    shown = tidegate("trace", result["request_id"][:20], "--from", traces).stdout
    for step in ("call", "forward", "published", "gateway", "back", "reply"):
        assert step in shown


def test_calls_are_recorded_as_rows(url: str) -> None:
    done = tidegate("--url", url, "--telemetry", "call", LABEL, "blink", "--json")
    assert done.returncode == ExitStatus.OK, done.stderr
    wanted = json.loads(done.stdout)["request_id"]
    path = Path(os.environ["RPC_TRACES"]) / "rows" / "rpc.jsonl"
    rows: list[dict[str, object]] = []
    deadline = time.monotonic() + 20.0
    while not rows and time.monotonic() < deadline:
        time.sleep(0.1)
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [row for row in map(json.loads, lines) if row["request_id"] == wanted]
    [row] = rows
    assert (row["outcome"], row["mac"], row["backbone"]) == ("ack", LABEL, "mqtt")
    assert None not in [row[name] for name in ("t_worker", "t_fwd", "t_mqtt", "t_gw", "t_bck", "t_reply")]


def test_calls_are_recorded_in_a_lake(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate", "rpc", "--url", url, "--namespace", "lake", "record"]
    recorder = [*command, "--lake", str(tmp_path)]
    with subprocess.Popen(recorder, env=CLEAN, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "recording\n"

            async def tell() -> None:
                options = Options(url=url, namespace="lake")
                async with Announcer(options) as announcer, Client(url) as witness:
                    await witness.subscribe(f"{options.root}/telemetry/#")
                    for step in (Step.CALL, Step.FORWARD, Step.REPLY):
                        announcer.on_hop(Hop(1.7e9, step, "request-1", LABEL, "part", outcome="ack"))
                    await anext(aiter(witness.messages))  # so the collector has it, too

            asyncio.run(tell())
        finally:
            process.terminate()
            assert process.wait(30.0) == 0
    [row] = dataset(tmp_path / "rpc").to_table().to_pylist()
    assert (row["request_id"], row["mac"], row["outcome"]) == ("request-1", LABEL, "ack")
    assert row["t_fwd"] is not None and row["t_gw"] is None


def test_a_task_from_the_command_line_and_its_death(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> tuple[int, str, str]:
        """In this process, since Python takes a second to start; the workers are real ones."""
        with pytest.raises(SystemExit) as ended:
            main(["rpc", "--url", url, *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    body = json.dumps({"calls": [{"device": LABEL, "method": "image", "fields": {"price": "2.99"}}]})
    code, out, _ = said("dispatch", "calls", body)
    assert code == ExitStatus.OK and '["ack"]' in out
    code, out, _ = said("dispatch", "dance", "{}", "--id", "t1")
    assert code == ExitStatus.FAILURE and "dance" in out
    assert said("dead")[1].startswith("t1 dance after 1 attempt:")
    assert json.loads(said("dead", "show", "t1")[1])["kind"] == "dance"
    assert said("dead", "replay", "t1")[1].startswith("replayed: t1 dance")
    deadline = time.monotonic() + 20.0
    while not said("dead")[1] and time.monotonic() < deadline:
        time.sleep(0.1)  # no worker can dance, so it dies again
    assert said("dead", "drop", "t1")[0] == ExitStatus.OK
    assert said("dead")[1] == ""
    assert said("dead", "replay", "t1")[2].startswith("error: no dead task 't1'")


def test_what_cannot_be_read_is_not_said_to_be_replayed(url: str) -> None:
    async def put_rubbish() -> None:
        async with Client(url) as client:
            await client.publish("tide/rpc/main/dead/tasks/rubbish", b"rubbish", qos=1, retain=True)

    asyncio.run(put_rubbish())
    for which in ("rubbish", "all"):
        done = tidegate("--url", url, "dead", "replay", which)
        assert done.returncode == ExitStatus.FAILURE and done.stdout.startswith("left: rubbish ?")
        assert done.stderr.startswith("error: no dead task could be replayed\nhint: ")
    assert tidegate("--url", url, "dead", "drop", "all").stdout.startswith("dropped: rubbish ?")
    assert tidegate("--url", url, "dead").stdout == ""


def test_what_is_wrong_is_said_in_one_line_with_a_hint(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: what a command is given is looked at before anything runs for long."""
    bad = tmp_path / "types.toml"
    bad.write_text("[[device]]\nname = 'x'\npattern = '['\n")
    for arguments, status in (
        (["--url", "mqtt://127.0.0.1:1", "call", LABEL, "image"], ExitStatus.FAILURE),
        (["--url", url, "--backend", "kafka", "call", LABEL, "image"], ExitStatus.USAGE),
        (["--url", url, "--types", str(bad), "call", LABEL, "image"], ExitStatus.FAILURE),
        (["--url", url, "--types", str(tmp_path / "none"), "router"], ExitStatus.FAILURE),
        (["--url", url, "--namespace", "a/b", "router"], ExitStatus.FAILURE),
        (["--url", url, "worker", "--app", "nowhere:HANDLERS"], ExitStatus.FAILURE),
        (["--url", url, "routes", "--rule", "best"], ExitStatus.USAGE),
        (["--url", url, "call", LABEL, "image", "--priority", "urgent"], ExitStatus.USAGE),
        (["--url", url, "--backend", "rabbitmq+redis", "keeper"], ExitStatus.USAGE),
        (["--url", url, "--backend", "rabbitmq+redis", "--amqp", "rabbit", "router"], ExitStatus.FAILURE),
        (["--url", url, "autoscale", "--min", "5", "--max", "2"], ExitStatus.FAILURE),
        (["--url", url, "autoscale", "--min", "0"], ExitStatus.FAILURE),
        (["trace", "x", "--from", str(tmp_path)], ExitStatus.FAILURE),
        (["--url", url, "dispatch", "calls", "[]"], ExitStatus.USAGE),
        (["--url", url, "call", LABEL, "blink", "seconds=soon"], ExitStatus.USAGE),
        (["--url", url, "dead", "replay"], ExitStatus.USAGE),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["rpc", *arguments])
        said = capsys.readouterr()
        assert ended.value.code == status, (arguments, said)
        assert "Traceback" not in said.err and 1 <= len(said.err.splitlines()) <= 4
    with pytest.raises(SystemExit) as ended:
        main(["rpc", "--url", url, "call", "nobody", "image"])
    assert ended.value.code == ExitStatus.FAILURE
    assert "refused (unknown device: " in capsys.readouterr().out


def test_autoscale_starts_routers_and_stops_them(world: World) -> None:
    part = world.part("autoscale", "--min", 1, "--max", 3, namespace="scaled", gateway="scaledgate")
    gateway = world.part("gateway", "scaledgate", namespace="scaled")
    world.start(part, gateway)  # says its first line when it has looked at the load for the first time
    done = tidegate(
        "--url", f"mqtt://127.0.0.1:{world.port}", "--namespace", "scaled", "call", LABEL, "image", "-W", 30
    )
    assert done.returncode == ExitStatus.OK, (done.stdout, done.stderr)
    pid = part.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    part.stop()
    assert not Path(f"/proc/{children[0]}").exists()


def is_running(pid: str) -> bool:
    """And no zombie, which somebody else has to bury."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_an_autoscaler_that_is_killed_leaves_no_router_behind(world: World) -> None:
    part = world.part("autoscale", namespace="killed")
    part.start()
    [child] = Path(f"/proc/{part.pid}/task/{part.pid}/children").read_text().split()
    part.kill()
    deadline = time.monotonic() + 20.0
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rpc", "--help"])
    shown = capsys.readouterr().out
    for name in (
        "router",
        "worker",
        "gateway",
        "routes",
        "keeper",
        "baseline",
        "call",
        "dispatch",
        "dead",
        "trace",
        "record",
        "autoscale",
    ):
        assert name in shown


PAGE = (Path(__file__).parents[2] / "docs" / "rpc.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_runs_as_printed(url: str) -> None:
    program = next(
        text for text in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "asyncio.run" in text
    )
    done = subprocess.run(
        [sys.executable, "-c", program.replace("mqtt://localhost", url)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["ack 000000000000", "100 of 100", "ack"]


def test_the_handlers_and_types_of_the_page_are_taken(url: str, world: World, tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "shop.py").write_text(
        next(text for kind, text in blocks if kind == "python" and "HANDLERS" in text)
    )
    types = tmp_path / "types.toml"
    types.write_text(next(text for kind, text in blocks if kind == "toml"))
    assert load_types(types).of("pump-7").encode("speed", {"rpm": 100}) == {"rpm": 100}
    worker = world.part("worker", "--app", "shop:HANDLERS", namespace="shop")
    router, gateway = (
        world.part("router", namespace="shop"),
        world.part("gateway", "shopgate", namespace="shop"),
    )
    router.command[router.command.index("--default-gateway") + 1] = "shopgate"
    os.environ["PYTHONPATH"] = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    ENVIRONMENT["PYTHONPATH"] = os.environ["PYTHONPATH"]
    world.start(worker, router, gateway)
    body = json.dumps({"price": "1.99", "labels": [LABEL, "0123456789ac"]})
    done = tidegate("--url", url, "--namespace", "shop", "dispatch", "new-price", body)
    assert done.returncode == ExitStatus.OK and done.stdout.strip().endswith("ack: 2"), done


def test_parts_wait_for_their_broker(tmp_path: Path) -> None:
    port = free_port()
    where = f"mqtt://127.0.0.1:{port}"
    gateway, router = (
        subprocess.Popen(
            [sys.executable, "-m", "tidegate", "rpc", "--url", where, "--default-gateway", "0" * 12, part],
            env=CLEAN,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in ("gateway", "router")
    )
    try:
        for process in (gateway, router):
            assert process.stderr is not None and "nobody listens" in process.stderr.readline()
        command = [sys.executable, "-m", "tidegate", "serve", "--host", "127.0.0.1", "--port", str(port)]
        with subprocess.Popen(command, env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
            for process in (gateway, router):
                assert process.stdout is not None and process.stdout.readline()
            done = tidegate("--url", where, "call", LABEL, "blink")
            assert (done.returncode, done.stderr) == (ExitStatus.OK, "")
            broker.terminate()
    finally:
        for process in (gateway, router):
            process.terminate()
            process.communicate()
