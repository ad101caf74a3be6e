"""Every command in README and guide is one that works: its options exist, the files it names are there.

Those that end by themselves are run here; the README's in tests/e2e/test_cli_readme.py, the lab's in tests/lab.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import REPOSITORY, Shown, blocks, page, shown_commands
from tidegate import __version__
from tidegate.broker.store.settings import StoreSettings
from tidegate.cli.command_tree import Command, read_commands
from tidegate.client import Client
from tidegate.testing import BrokerThread

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
SHOWN = shown_commands()
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Programs of the reader's machine: nothing to check but the files of ours that they are given.
OTHERS = {
    ".", "apt-get", "chown", "curl", "echo", "eval", "export", "install", "jq", "kubectl", "man", "mosquitto_pub",
    "grep", "mosquitto_sub", "openssl", "podman", "printf", "sleep", "spark-submit", "systemctl", "systemd-sysusers",
    "tail",
}  # fmt: skip


@pytest.fixture(scope="module")
def commands() -> Command:
    return read_commands()


def check_tidegate(words: tuple[str, ...], root: Command) -> None:
    command, rest = root, list(words)
    while rest and (found := [each for each in command.commands if each.path[-1] == rest[0]]):
        command, rest = found[0], rest[1:]
    assert command.path or rest == ["--version"], f"no such command: {rest[:1]}"
    assert not command.commands or not rest or rest[0].startswith("-"), (
        f"{command.name} has no command {rest[0]}"
    )
    known = {name for option in command.options for name in option.names}
    for word in rest:
        name = word.split("=")[0]
        if name.startswith("--") or re.fullmatch(r"-[A-Za-z]", name):
            assert name in known, f"{command.name} has no option {name}"


def check_make(words: tuple[str, ...]) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = [word for word in words if "=" not in word]
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def check_pip(words: tuple[str, ...]) -> None:
    extras = PROJECT["optional-dependencies"]
    for word in words:
        for name in re.findall(r"\[([\w,]+)\]", word):
            assert all(extra in extras for extra in name.split(","))


def check_python(words: tuple[str, ...], shown: Shown) -> None:
    if words[0] == "-m":
        assert words[1] in ("build", "venv", "pytest") or words[1].startswith(("bench.", "tidegate"))
        if words[1].startswith("bench."):
            assert (REPOSITORY / words[1].replace(".", "/")).exists()
        return
    is_there = (REPOSITORY / words[0]).exists()
    assert is_there or words[0] in (REPOSITORY / shown.page).read_text(encoding="utf-8")


def check_helm(words: tuple[str, ...]) -> None:
    chart = next(word for word in words if "/" in word)
    values = yaml.safe_load((REPOSITORY / chart / "values.yaml").read_text(encoding="utf-8"))
    for setting in (words[at + 1] for at, word in enumerate(words) if word == "--set"):
        node = values
        for part in setting.split("=")[0].split("."):
            node = node[part]


@pytest.mark.parametrize("shown", SHOWN, ids=str)
def test_a_command_that_is_shown_exists(shown: Shown, commands: Command) -> None:
    program, rest = shown.words[0].rpartition("/")[2], shown.words[1:]
    if shown.words[0] == ".":
        program = "."
    checks: dict[str, Callable[[], None]] = {
        "tidegate": lambda: check_tidegate(rest, commands),
        "make": lambda: check_make(rest),
        "pip": lambda: check_pip(rest),
        "python": lambda: check_python(rest, shown),
        "python3": lambda: check_python(rest, shown),
        "helm": lambda: check_helm(rest),
    }
    if program in checks:
        checks[program]()
    else:
        assert program in OTHERS, f"what is {program}?"
    for word in rest:
        if word.startswith(("packaging/", "examples/", "scripts/")):
            assert (REPOSITORY / word).exists(), word


def test_the_guide_shows_commands_at_all() -> None:
    assert len({shown.page for shown in SHOWN}) >= 10
    assert len(SHOWN) >= 60


def test_the_page_on_installing_lists_every_extra() -> None:
    text = page("install.md").read_text(encoding="utf-8")
    assert [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in text] == []


# --- those that end by themselves


def run(words: tuple[str, ...] | list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    assert words[0] == "tidegate"
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, env=CLEAN, cwd=folder, capture_output=True, text=True, timeout=60)


def shown_on(name: str, start: str) -> tuple[str, ...]:
    """The one command of a page that begins so."""
    found = {
        each.words
        for each in SHOWN
        if each.page == f"docs/{name}" and shlex.join(each.words).startswith(start)
    }
    assert len(found) == 1, found
    return found.pop()


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert run(shown_on("install.md", "tidegate --version"), tmp_path).stdout == f"tidegate {__version__}\n"


def test_the_import_of_a_mosquitto_configuration(tmp_path: Path) -> None:
    source = tmp_path / "mosquitto.conf"
    source.write_text("listener 1884 127.0.0.1\nallow_anonymous true\n", encoding="utf-8")
    words = [
        str(source) if word == "/etc/mosquitto/mosquitto.conf" else word
        for word in shown_on("migrating.md", "tidegate import-mosquitto")
    ]
    assert run(words, tmp_path).returncode == 0
    assert run(shown_on("migrating.md", "tidegate check-config"), tmp_path).stdout == "tidegate.toml: OK\n"


def test_backup_and_restore(tmp_path: Path) -> None:
    import asyncio

    from tidegate.broker import Broker

    old, new = tmp_path / "old", tmp_path / "new"

    async def fill() -> None:
        async with (
            Broker(port=0, data=old, store=StoreSettings()) as broker,
            Client(f"mqtt://127.0.0.1:{broker.port}") as client,
        ):
            await client.publish("tide/level", b"3.2", qos=1, retain=True)

    asyncio.run(fill())

    def there(start: str, folder: Path) -> list[str]:
        return [
            str(folder) if word == "/var/lib/tidegate" else word for word in shown_on("operating.md", start)
        ]

    assert run(there("tidegate store export", old), tmp_path).returncode == 0
    assert run(there("tidegate store import", new), tmp_path).returncode == 0
    checked = run(there("tidegate store check", new), tmp_path)
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "ok")
    assert "retained 1" in checked.stdout.splitlines()


def test_looking_at_a_running_broker(tidegate_broker: BrokerThread, tmp_path: Path) -> None:
    port = str(tidegate_broker.port)
    top = run([*shown_on("operating.md", "tidegate top --once"), "-p", port], tmp_path)
    assert top.returncode == 0, top.stderr
    sub = run([*shown_on("operating.md", "tidegate sub"), "-p", port], tmp_path)
    assert (sub.returncode, len(sub.stdout.splitlines())) == (0, 20), sub.stderr
    bench = shown_on("operating.md", "tidegate bench")
    words = ["0.3" if bench[at - 1] == "--seconds" else word for at, word in enumerate(bench)]
    result = run([*words, "--port", port, "--warmup", "0.1"], tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["backoff.md", "shared.md", "security.md"])
def test_settings_in_the_guide_load(name: str, tmp_path: Path) -> None:
    from tidegate.settings import load_settings

    for text in blocks(page(name), "toml"):
        file = tmp_path / "tidegate.toml"
        file.write_text(text, encoding="utf-8")
        load_settings(file)
