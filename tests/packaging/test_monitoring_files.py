"""Alert rules and dashboard ask for metrics that a running broker really has."""

import importlib.util
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.broker.metrics import serve_metrics
from tidegate.broker.store.settings import StoreSettings
from tidegate.testing import BrokerThread

REPOSITORY = Path(__file__).parents[2]
RULES = yaml.safe_load((REPOSITORY / "packaging/prometheus/alerts.yaml").read_text(encoding="utf-8"))
DASHBOARD = REPOSITORY / "packaging" / "grafana" / "tidegate.json"
NAME = re.compile(r"\b(?:tidegate|process)_[a-z_]+\b")
# Prometheus itself makes these.
OF_PROMETHEUS = {"up"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names on the metrics page of a broker with a data folder, and the labels of each."""
    with BrokerThread(data=tmp_path_factory.mktemp("data"), store=StoreSettings()) as broker:
        port, stop = serve_metrics("127.0.0.1", 0, "harbour", broker.statistics)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
                text = page.read().decode()
        finally:
            stop()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    found: dict[str, set[str]] = {name: set() for name in names}
    for line in text.splitlines():
        if sample := re.match(r"(\w+)\{(.*)\} ", line):
            found.setdefault(sample[1], set()).update(re.findall(r"(\w+)=", sample[2]))
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def test_alerts_ask_for_metrics_that_exist(exported: dict[str, set[str]]) -> None:
    for rule in rules():
        asked = set(NAME.findall(rule["expr"]))
        assert asked or rule["expr"].startswith(tuple(OF_PROMETHEUS))
        assert asked <= exported.keys(), rule["alert"]


def test_alerts_are_complete_and_told_apart() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10
    for rule in rules():
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert "$labels.instance" in rule["annotations"]["summary"] and rule["annotations"]["description"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_alerts_are_those_of_the_guide() -> None:
    """docs/monitoring.md explains each; the times and numbers are the same."""
    text = (REPOSITORY / "docs" / "monitoring.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([^`]+)`(?: for (\d+) (\w))?", text, flags=re.MULTILINE)
    explained = {expression: f"{number}{unit}" for expression, number, unit in table}
    for rule in rules():
        assert explained[re.sub(r"\{[^}]*\}", "", rule["expr"])] == rule["for"], rule["alert"]


def test_the_dashboard_asks_for_metrics_that_exist(exported: dict[str, set[str]]) -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in document["panels"]:
        for target in panel["targets"]:
            asked = set(NAME.findall(target["expr"]))
            assert asked and asked <= exported.keys(), panel["title"]
            for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
                # Publishers come and go, so their metrics may have no sample here.
                known = exported[asked.pop()]
                assert label in known or not known, (panel["title"], label)


def test_the_dashboard_is_laid_out_without_overlap() -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])


def test_the_dashboard_is_what_its_table_says() -> None:
    spec = importlib.util.spec_from_file_location("grafana_build", DASHBOARD.with_name("build.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert DASHBOARD.read_text(encoding="utf-8") == module.render(), "run `make docs`"
