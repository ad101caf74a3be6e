"""The compose file, checked without an engine: versions, users, volumes, commands and settings fit together."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate import __version__
from tidegate.cli.command_tree import read_commands
from tidegate.settings import load_settings
from tidegate.settings.load import known_keys

REPOSITORY = Path(__file__).parents[2]
PACKAGING = REPOSITORY / "packaging"
CONTAINER = PACKAGING / "container.toml"
RPC_VARIABLES = {
    "TIDEGATE_URL", "TIDEGATE_RPC_BACKEND", "TIDEGATE_RPC_AMQP", "TIDEGATE_RPC_REDIS", "TIDEGATE_RPC_SECRET",
}  # fmt: skip
OTHERS = {"rabbitmq", "redis"}
SPARK = {"pipeline", "spark-master", "spark-worker"}
RPC = {"router", "worker", "routes"}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = document()["services"]
    return found


def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PACKAGING / "compose.yaml").read_text(encoding="utf-8"))
    return found


def containerfile() -> str:
    return (PACKAGING / "Containerfile").read_text(encoding="utf-8")


def ours(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services.items() if name not in OTHERS}


def test_it_has_a_node_the_pipeline_and_the_backbone(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {"tidegate"} | OTHERS | SPARK | RPC


def test_ports_are_published_on_loopback_only_and_none_twice(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    hosts = [port.split(":")[1] for port in published]
    assert len(hosts) == len(set(hosts))


def test_volumes_and_services_that_are_named_exist_and_are_used(services: dict[str, dict[str, Any]]) -> None:
    used = {mount.split(":")[0] for service in services.values() for mount in service.get("volumes", [])}
    assert used == set(document()["volumes"])
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert service["restart"] == "unless-stopped"


def test_our_images_are_all_made_by_the_one_container_file(services: dict[str, dict[str, Any]]) -> None:
    extras_of: dict[str, set[str]] = {}
    for service in ours(services).values():
        build = service["build"]
        assert (PACKAGING / build["context"] / build["dockerfile"]).resolve() == PACKAGING / "Containerfile"
        extras_of.setdefault(service["image"], set()).add(build["args"]["EXTRAS"])
    # An image has one content, and a content one name.
    assert all(len(each) == 1 for each in extras_of.values())
    assert len(extras_of) == len({extras for each in extras_of.values() for extras in each}) == 3
    known = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for (extras,) in extras_of.values():
        assert set(extras.split(",")) <= set(known["optional-dependencies"])
    assert list(PACKAGING.rglob("Containerfile*")) == [PACKAGING / "Containerfile"]


def test_images_that_are_named_anywhere_carry_this_version(services: dict[str, dict[str, Any]]) -> None:
    names = {service["image"] for service in ours(services).values()}
    manifests = (PACKAGING / "rpc" / "kubernetes").glob("*.yaml")
    in_manifests = {name for file in manifests for name in re.findall(r"image: (\S+)", file.read_text())}
    assert in_manifests == {services["router"]["image"]}
    in_comments = set(re.findall(r" -t (\S+) \.", containerfile()))
    assert all(re.fullmatch(rf"localhost/tidegate[a-z-]*:{re.escape(__version__)}", n) for n in names | in_comments)


def test_spark_is_the_version_of_the_constraints(services: dict[str, dict[str, Any]]) -> None:
    """It comes with the wheel of pyspark: no other image has a version of its own."""
    constraints = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"^pyspark==4\.", constraints, re.MULTILINE)
    assert "-c constraints.txt" in containerfile()
    for name in SPARK:
        assert services[name]["image"].startswith("localhost/tidegate-spark:")
        assert "spark" in services[name]["build"]["args"]["EXTRAS"].split(",")
    assert {service["image"].partition(":")[0] for service in services.values() if "build" not in service} == OTHERS


def test_all_of_ours_run_as_the_user_whose_folders_the_volumes_are(services: dict[str, dict[str, Any]]) -> None:
    [user] = re.findall(r"^USER (\d+):\1$", containerfile(), re.MULTILINE)
    made = re.findall(rf"install -d -o {user} -g {user} -m \d+ ([^\\\n]+)", containerfile())
    folders = {folder for line in made for folder in line.split()}
    for service in ours(services).values():
        assert "user" not in service
        assert {mount.split(":")[1] for mount in service.get("volumes", [])} <= folders


def test_what_is_recorded_is_learnt_from_and_what_is_learnt_is_followed(services: dict[str, dict[str, Any]]) -> None:
    node, pipeline = services["tidegate"], services["pipeline"]
    settings = load_settings(CONTAINER, (), node["environment"])
    options = dict(word[2:].split("=", 1) for word in pipeline["command"] if word.startswith("--"))
    assert (options["lake"], options["policy"]) == (settings.lake.path, settings.policy.path)
    for service in (node, pipeline, services["spark-worker"]):
        assert f"lake:{settings.lake.path}" in service["volumes"]
    assert f"policy:{settings.policy.path}:ro" in node["volumes"]
    assert f"policy:{settings.policy.path}" in pipeline["volumes"]
    assert "lake" in node["build"]["args"]["EXTRAS"].split(",")
    assert options["master"] == services["spark-worker"]["command"][-1] == "spark://spark-master:7077"
    host, port = services["spark-master"]["command"][1:4:2]
    assert options["master"] == f"spark://{host}:{port}"


def test_every_variable_is_a_setting_or_an_option(services: dict[str, dict[str, Any]]) -> None:
    known = set(known_keys())
    for name in services["tidegate"]["environment"]:
        assert name.removeprefix("TIDEGATE_").lower().replace("__", ".") in known
    load_settings(CONTAINER, (), services["tidegate"]["environment"])
    source = "".join(file.read_text() for file in sorted((REPOSITORY / "src/tidegate/cli").glob("*.py")))
    for name in RPC:
        assert set(services[name]["environment"]) == RPC_VARIABLES
    assert all(f'"{name}"' in source for name in RPC_VARIABLES)
    for name in SPARK:
        assert "environment" not in services[name]


def test_ours_write_nowhere_but_to_volumes_and_a_tmp_from_which_only_java_loads_libraries(
    services: dict[str, dict[str, Any]],
) -> None:
    """Engines mount a tmpfs noexec unless they are told; zstd and Spark load what they have unpacked there."""
    for name, service in ours(services).items():
        assert service["read_only"] is True
        assert service["tmpfs"] == (["/tmp:exec"] if name in SPARK else ["/tmp"])


def test_the_head_says_what_a_password_that_becomes_part_of_a_url_may_be() -> None:
    head = (PACKAGING / "compose.yaml").read_text(encoding="utf-8").partition("\n\n")[0]
    assert "RABBITMQ_PASSWORD becomes part of a URL:\n# letters and digits only" in head


def test_passwords_agree(services: dict[str, dict[str, Any]]) -> None:
    rabbit = services["rabbitmq"]["environment"]
    login = f"{rabbit['RABBITMQ_DEFAULT_USER']}:{rabbit['RABBITMQ_DEFAULT_PASS']}"
    for name in RPC:
        assert services[name]["environment"]["TIDEGATE_RPC_AMQP"] == f"amqp://{login}@rabbitmq/"


def test_every_command_is_one_that_tidegate_takes(services: dict[str, dict[str, Any]]) -> None:
    groups = {group.path: group for group in read_commands().commands}
    given = [each["command"] for each in ours(services).values() if "command" in each and "entrypoint" not in each]
    assert len(given) == 4  # the node does what the image does by itself
    for group, name, *words in given:
        command = next(each for each in groups[(group,)].commands if each.path == (group, name))
        known = {option for each in command.options for option in each.names}
        assert {word.partition("=")[0] for word in words} <= known


def test_only_the_node_is_asked_whether_it_is_well(services: dict[str, dict[str, Any]]) -> None:
    """The image's own check asks for a node's metrics."""
    for name, service in ours(services).items():
        assert (service.get("healthcheck") == {"disable": True}) == (name != "tidegate")


def test_anybody_gets_into_the_node(services: dict[str, dict[str, Any]]) -> None:
    """It is for trying out; its ports are on the loopback address."""
    first, second = load_settings(CONTAINER, (), services["tidegate"]["environment"]).listeners
    assert (first.address, first.accepts_anonymous) == ("mqtt://0.0.0.0:1883", True)
    assert (second.address, second.accepts_anonymous) == ("ws://0.0.0.0:8083/mqtt", False)
