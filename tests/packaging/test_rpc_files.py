"""Deployment files fit their schemas, name commands that exist, and agree with each other and with the code."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.main import get_command

from tidegate.cli.rpc import app
from tidegate.rpc.backbone import ROUTING
from tidegate.rpc.messages import PRIORITIES
from tidegate.rpc.options import Options

DEPLOY = Path(__file__).parents[2] / "packaging" / "rpc"
MANIFESTS = [
    document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]


def schema(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DEPLOY / "schemas" / f"{name}.json").read_text())
    return content


def named(document: dict[str, Any]) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


@pytest.mark.parametrize("name", ["deployment", "scaledobject", "triggerauthentication"])
def test_the_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("document", MANIFESTS, ids=named)
def test_a_manifest_fits_its_schema(document: dict[str, Any]) -> None:
    jsonschema.validate(document, schema(document["kind"].lower()))


@pytest.mark.parametrize(
    "change", [{"kind": "Pod"}, {"spec": {}}, {"metadata": {"name": "UPPER"}}, {"extra": 1}]
)
def test_the_schema_finds_faults(change: dict[str, Any]) -> None:
    for document in MANIFESTS:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document | change, schema(document["kind"].lower()))


def commands() -> list[list[str]]:
    found = []
    for document in MANIFESTS:
        if document["kind"] == "Deployment":
            found += [each["args"] for each in document["spec"]["template"]["spec"]["containers"]]
    return [command for command in found if command[0] == "rpc"]


def test_the_commands_exist() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    assert len(commands()) == 3
    for command in commands():
        options = {name for each in known[command[1]].params for name in each.opts}
        assert {word for word in command[2:] if word.startswith("--")} <= options


def test_selectors_targets_and_secrets_agree() -> None:
    deployments = {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == "Deployment"}
    for each in deployments.values():
        assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]
    [scaled] = [each for each in MANIFESTS if each["kind"] == "ScaledObject"]
    [authentication] = [each for each in MANIFESTS if each["kind"] == "TriggerAuthentication"]
    assert scaled["spec"]["scaleTargetRef"]["name"] in deployments
    assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["maxReplicaCount"]
    queues = {f"tide.rpc.{Options().namespace}.{ROUTING}.{priority}" for priority in PRIORITIES}
    for trigger in scaled["spec"]["triggers"]:
        assert trigger["metadata"]["queueName"] in queues
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
