"""The systemd unit, the container file and the sample settings, checked without an engine."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tidegate.cli.command_tree import Command, read_commands
from tidegate.settings import load_settings

REPOSITORY = Path(__file__).parents[2]
PACKAGING = REPOSITORY / "packaging"
CONTAINER = PACKAGING / "container.toml"
DATA = "/var/lib/tidegate"


@pytest.fixture(scope="module")
def commands() -> Command:
    return read_commands()


def check_options(words: list[str], commands: Command) -> None:
    """The words after `tidegate` name a command and options that it has."""
    command = next(each for each in commands.commands if each.path == (words[0],))
    known = {name for option in command.options for name in option.names}
    assert {word for word in words if word.startswith("-")} <= known


# --- settings


def test_the_sample_settings_load_as_they_are() -> None:
    settings = load_settings(PACKAGING / "tidegate.toml")
    assert str(settings.data) == DATA
    assert [listener.host for listener in settings.listeners] == ["127.0.0.1"]


def test_the_sample_settings_load_with_everything_switched_on(tmp_path: Path) -> None:
    text = re.sub(
        r"^#(?=\[|\w+ = )", "", (PACKAGING / "tidegate.toml").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    file = tmp_path / "tidegate.toml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings(file)
    assert [listener.type for listener in settings.listeners] == ["tcp", "tls"]
    assert settings.accounts.rights_file is not None


# --- systemd


def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of a unit have capitals
    parser.read(PACKAGING / "tidegate.service", encoding="utf-8")
    return parser


def test_the_unit_starts_what_exists(commands: Command) -> None:
    service = unit()["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0] == "/opt/tidegate/bin/tidegate"
    check_options(words[1:], commands)
    # The status of the node itself: whatever runs before it is tried again for ever.
    assert (service["RestartPreventExitStatus"], "ExecStartPre" in service) == ("78", False)
    assert f"/var/lib/{service['StateDirectory']}" == DATA
    settings = load_settings(PACKAGING / "tidegate.toml")
    assert int(service["TimeoutStopSec"]) > settings.shutdown_timeout
    assert int(service["LimitNOFILE"]) > settings.limits.max_connections


def test_the_user_of_the_unit_is_made() -> None:
    kind, name, *_ = (PACKAGING / "tidegate.sysusers").read_text(encoding="utf-8").splitlines()[-1].split()
    assert (kind, name) == ("u", unit()["Service"]["User"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # The program is not installed where the unit looks for it; any that can be executed will do.
    text = (PACKAGING / "tidegate.service").read_text(encoding="utf-8")
    file = tmp_path / "tidegate.service"
    text = text.replace("/opt/tidegate/bin/tidegate", "/bin/true")
    text = re.sub("^(User|Group|Documentation)=.*\n", "", text, flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")


# --- container


def instructions() -> list[tuple[str, str]]:
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in found]


def test_the_container_file_is_made_of_known_instructions() -> None:
    known = {
        "FROM",
        "ARG",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {name for name, _ in instructions()} <= known
    assert [name for name, _ in instructions()].count("FROM") == 2


def test_what_the_container_copies_is_there_and_enough_to_build() -> None:
    copied = [
        word
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    ]
    assert all((REPOSITORY / path).exists() for path in copied)
    # pyproject.toml names a readme, a licence and files to install beside the package.
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src", "packaging/man"} <= set(
        copied
    )


def test_the_container_starts_a_node_as_somebody_who_may_write_its_data(commands: Command) -> None:
    found = dict(instructions())  # of several, the last
    words = yaml.safe_load(found["ENTRYPOINT"]) + yaml.safe_load(found["CMD"])
    assert words[0] == "tidegate"
    check_options(words[1:], commands)
    settings = load_settings(CONTAINER)
    ports = {str(each.port) for each in settings.listeners} | {str(settings.metrics.port)}
    assert ports == set(found["EXPOSE"].split())
    assert str(settings.data) == found["VOLUME"] == DATA
    assert not any(each.accepts_anonymous for each in settings.listeners)
    user, group = found["USER"].split(":")
    assert user != "0" and f"-o {user} -g {group}" in found["RUN"]
    assert f":{settings.metrics.port}/metrics" in found["HEALTHCHECK"]


def test_a_file_that_is_mounted_into_the_container_is_read_and_nothing_overrides_it() -> None:
    place = "/etc/tidegate/tidegate.toml"
    assert ("COPY", f"packaging/container.toml {place}") in instructions()
    assert yaml.safe_load(dict(instructions())["CMD"]) == ["serve", "--config", place]
    deploying = (REPOSITORY / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert f"`{place}`" in deploying


def test_the_context_of_the_build_is_what_is_copied() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert "*" in lines and kept == copied


def test_java_comes_with_spark_and_only_then() -> None:
    [install] = [rest for name, rest in instructions() if name == "RUN" and "apt-get" in rest]
    assert install.startswith('case ",$EXTRAS," in *,spark,*)') and install.endswith("esac")
    assert "openjdk-17-jre-headless" in install
    assert [rest for name, rest in instructions() if name == "ARG"] == ["EXTRAS=jwt", "EXTRAS=jwt"]  # one a stage
