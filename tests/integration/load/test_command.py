"""`tidegate bench` against Mosquitto: the table, the JSON, and the exit code."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from bench.brokers import Broker
from tidegate import load
from tidegate.cli import bench


def invoke(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(bench.command)
    return CliRunner().invoke(app, arguments)


def test_bench_prints_a_table_and_writes_json(mosquitto: Broker, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    options = [
        "--port",
        str(mosquitto.port),
        "--pid",
        str(mosquitto.pid),
        "--seconds",
        "0.3",
        "--warmup",
        "0.1",
    ]
    done = invoke("fanout", *options, "--qos", "1", "--subscribers", "4", "--json", str(out))
    assert done.exit_code == 0, done.output
    record = json.loads(out.read_text())
    assert (record["mode"], record["qos"], record["subscribers"], record["drops"]) == ("fanout", 1, 4, 0)
    assert "messages a second" in done.stdout
    assert "broker CPU a message" in done.stdout
    assert "measuring for 0.3 s" in done.stderr


def test_bench_writes_json_alone_to_stdout(mosquitto: Broker) -> None:
    done = invoke("pairs", "--port", str(mosquitto.port), "--seconds", "0.2", "--warmup", "0", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["received"] > 0


def test_bench_passes_errors_on_to_the_entry_point() -> None:
    done = invoke("waltz")
    assert isinstance(done.exception, load.SettingsError)
    assert "pairs" in done.exception.hint
