"""The Helm chart: what it makes is valid, fits together, and starts a node that would do as the values say."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.packaging.helm import Chart
from tidegate import __version__
from tidegate.settings import load_settings

FOLDER = Path(__file__).parents[2] / "packaging" / "helm" / "tidegate"
SCHEMA = json.loads((FOLDER / "values.schema.json").read_text(encoding="utf-8"))
ALL_ON: dict[str, Any] = {
    "auth": {"existingSecret": "people"},
    "tls": {"existingSecret": "certificate"},
    "websocket": {"enabled": True},
    "settings": {"limits": {"max_connections": 500}, "features": {"queue_full": "drop", "queue_qos0": True}},
    "persistence": {"storageClass": "fast"},
    "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "annotations": {"a": "b"}},
    "metrics": {"serviceMonitor": True},
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "mqtt", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"note": "x"},
}
CASES = {"defaults": {}, "everything": ALL_ON, "in memory": {"persistence": {"enabled": False}}}


@pytest.fixture(scope="module")
def chart() -> Chart:
    return Chart(FOLDER)


def pod(made: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    spec: dict[str, Any] = made["statefulset.yaml"][0]["spec"]["template"]["spec"]
    return spec


def test_versions_are_those_of_the_package(chart: Chart) -> None:
    assert chart.meta["apiVersion"] == "v2"
    assert chart.meta["appVersion"] == __version__


def test_the_image_is_the_one_that_the_guide_builds(chart: Chart) -> None:
    image = pod(chart.render({}))["containers"][0]["image"]
    guide = (FOLDER.parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert re.findall(r"podman build -f packaging/Containerfile -t (\S+) \.", guide) == [image]
    assert set(re.findall(r"localhost/tidegate:\S+?(?=[\s`])", guide)) == {image}


@pytest.mark.parametrize("case", CASES)
def test_objects_have_what_kubernetes_asks_of_them(chart: Chart, case: str) -> None:
    made = [
        each
        for name, objects in chart.render(CASES[case]).items()
        if name.endswith(".yaml")
        for each in objects
    ]
    for each in made:
        assert {"apiVersion", "kind", "metadata"} <= each.keys()
        assert each["metadata"]["name"].startswith("plant-tidegate")
        assert each["metadata"]["labels"]["app.kubernetes.io/version"] == __version__
    kinds = [each["kind"] for each in made]
    assert kinds.count("StatefulSet") == kinds.count("ConfigMap") == 1 and kinds.count("Service") == 2
    assert ("ServiceMonitor" in kinds) == (case == "everything")


@pytest.mark.parametrize("case", CASES)
def test_parts_refer_to_each_other(chart: Chart, case: str) -> None:
    made = chart.render(CASES[case])
    stateful = made["statefulset.yaml"][0]["spec"]
    [container] = pod(made)["containers"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"].items() <= labels.items()
    ports = {port["name"] for port in container["ports"]}
    for service in made["service.yaml"]:
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    volumes = {volume["name"] for volume in pod(made)["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in stateful.get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("case", CASES)
def test_the_settings_load_and_match_ports_and_mounts(chart: Chart, case: str, tmp_path: Path) -> None:
    made = chart.render(CASES[case])
    file = tmp_path / "tidegate.toml"
    file.write_text(made["configmap.yaml"][0]["data"]["tidegate.toml"], encoding="utf-8")
    settings = load_settings(file)
    [container] = pod(made)["containers"]
    ports = {port["containerPort"] for port in container["ports"]}
    assert {listener.port for listener in settings.listeners} | {settings.metrics.port} == ports
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(settings.data) in mounts
    named = [settings.accounts.password_file, settings.accounts.rights_file]
    named += [listener.certfile for listener in settings.listeners]
    assert all(any(str(path).startswith(mount) for mount in mounts) for path in named if path is not None)
    assert not any(listener.accepts_anonymous for listener in settings.listeners)
    if case == "everything":
        assert (settings.limits.max_connections, settings.features.queue_full) == (500, "drop")


def test_other_settings_are_another_pod(chart: Chart) -> None:
    def annotations(changes: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = chart.render(changes)["statefulset.yaml"][0]["spec"]["template"]["metadata"][
            "annotations"
        ]
        return found

    plain, again = annotations({}), annotations({"service": {"type": "LoadBalancer"}})
    changed = annotations({"settings": {"limits": {"max_connections": 500}}, "podAnnotations": {"note": "x"}})
    assert plain == again
    assert changed["checksum/config"] != plain["checksum/config"]
    assert changed["note"] == "x"


def test_the_pod_is_not_root_and_cannot_write_but_to_its_data(chart: Chart) -> None:
    spec = pod(chart.render())
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_notes_say_when_nobody_can_connect(chart: Chart) -> None:
    def notes(changes: dict[str, Any]) -> str:
        text: str = chart.render(changes)["NOTES.txt"][0]["text"]
        return text

    assert "Nobody can connect" in notes({})
    assert "Nobody can connect" not in notes(ALL_ON)
    assert "Nobody can connect" not in notes({"auth": {"allowAnonymous": True}})


@pytest.mark.parametrize("case", CASES)
def test_values_fit_their_schema(chart: Chart, case: str) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(chart.values, SCHEMA)
    jsonschema.validate(CASES[case], SCHEMA)


@pytest.mark.parametrize(
    "values",
    [
        {"auth": {"existingSecrt": "x"}},
        {"service": {"type": "Ingress"}},
        {"persistence": {"size": "much"}},
        {"settings": {"accounts": {"scram": True}}},
        {"settings": {"limits": {"max_connections": [1]}}},
        {"replicas": 3},
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_every_value_is_in_the_schema_and_used(chart: Chart) -> None:
    templates = "".join(path.read_text(encoding="utf-8") for path in (FOLDER / "templates").iterdir())
    for name, value in chart.values.items():
        assert name in SCHEMA["properties"]
        below = value if isinstance(value, dict) and name not in ("settings", "resources") else {}
        for key in below or [""]:
            assert f".Values.{name}{'.' if key else ''}{key}" in templates, (name, key)
