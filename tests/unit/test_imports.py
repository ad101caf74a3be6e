"""Each room imports only the rooms it may: the one rule about structure that a machine checks."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate

SOURCE = Path(tidegate.__file__).parent

EVERYTHING = frozenset(
    {
        "errors",
        "stats",
        "schema",
        "mqtt",
        "flow",
        "net",
        "broker",
        "client",
        "rpc",
        "cluster",
        "space",
        "lake",
        "policy",
    }
    | {"pipeline", "spark", "console", "load", "accounts", "settings", "log", "node", "sim", "testing", "lab"}
)

# What a room may import beside itself, `errors`, `private` and the version. A dotted entry allows that module only.
ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "private": frozenset(),
    "stats": frozenset(),
    "schema": frozenset(),
    "log": frozenset(),
    "mqtt": frozenset(),
    "flow": frozenset(),
    "net": frozenset({"mqtt", "stats"}),
    "broker": frozenset({"mqtt", "flow", "net", "stats"}),
    "client": frozenset({"mqtt", "flow", "net", "stats"}),
    "rpc": frozenset({"client", "mqtt", "flow"}),
    "cluster": frozenset({"broker", "client", "mqtt", "flow", "net", "stats"}),
    "space": frozenset({"rpc", "client", "mqtt", "flow", "net"}),
    # lake takes what the broker records, and knows nothing else of it.
    "lake": frozenset({"schema", "stats", "broker.recording", "broker.settings"}),
    "policy": frozenset({"schema", "flow", "lake.arrow", "broker.settings"}),
    "pipeline": frozenset({"schema", "flow", "client", "policy"}),
    # MQTT for anybody's Spark session: it knows nothing of lakes and policies.
    "spark": frozenset({"client", "mqtt", "net", "flow.load_report"}),
    # Rooms that may be missing are found by name when a page needs them: see console/rooms.py.
    "console": frozenset(
        {"client", "mqtt", "net.addresses", "net.doorway", "net.handshakes", "net.origins", "net.tls"}
        | {"accounts", "lake", "schema", "stats"}
    ),
    "demo": frozenset({"client", "mqtt"}),
    "load": frozenset({"mqtt", "stats"}),
    # accounts implements the broker's hook protocols and knows nothing else of it.
    "accounts": frozenset({"mqtt", "broker.hooks", "broker.settings", "broker.connection", "broker.session"}),
    "settings": frozenset(
        {"broker.settings", "broker.flow_settings", "broker.store.settings", "accounts.settings", "flow", "net"}
        | {"cluster.settings", "lake.settings", "mqtt.errors", "mqtt.topics", "policy.settings"}
    ),
    "migrate": frozenset({"accounts"}),
    "node": EVERYTHING - {"pipeline", "spark", "lab", "testing", "sim"},
    "sim": frozenset({"mqtt", "flow", "stats"}),
    "testing": frozenset({"node", "broker", "client", "rpc", "sim", "settings", "net", "mqtt"}),
    "lab": EVERYTHING,
    "cli": frozenset(
        {
            "node",
            "accounts",
            "broker.store",
            "console",
            "demo",
            "client",
            "cluster",
            "rpc",
            "space",
            "pipeline",
            "lab",
            "settings",
            "log",
            "load",
            "migrate",
            "net",
            "mqtt",
            "lake",
            "policy",
            "schema",
        }
    ),
    "__main__": frozenset({"cli"}),
}

# Rooms that stay pure, so that tests, the simulator and Spark run the code that serves.
PURE = ("mqtt", "flow")
IMPURE_MODULES = frozenset(
    {"asyncio", "socket", "ssl", "time", "threading", "selectors", "uvloop", "websockets"}
)

FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> Iterator[str]:
    """Full names of everything a file imports, wherever in the file, relative imports resolved."""
    package = ("tidegate", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module.split(".") if node.module else ())))
            # `from tidegate import net` names a room as well as `from tidegate.net import x` does.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_allowed(room: str, module: str) -> bool:
    target = module.removeprefix("tidegate.")
    top = target.partition(".")[0]
    if top in (room, "errors", "private", "__version__"):
        return True
    return any(target == entry or target.startswith(f"{entry}.") for entry in ALLOWED[room])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_the_rooms_it_may(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        room = "errors"  # the package itself imports nothing, like its errors
    assert room in ALLOWED, f"{room} is a new room: say in this table what it may import"
    wrong = [
        module
        for module in imported_modules(path)
        if module.startswith("tidegate.") and not is_allowed(room, module)
    ]
    assert wrong == []


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_knows_no_clock_and_no_socket(room: str) -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}: {module}"
        for path in FILES
        if room_of(path) == room
        for module in imported_modules(path)
        if module.partition(".")[0] in IMPURE_MODULES
    ]
    assert wrong == []


def test_only_two_rooms_import_pyspark() -> None:
    wrong = [
        str(path.relative_to(SOURCE))
        for path in FILES
        if room_of(path) not in ("pipeline", "spark", "lab")
        for module in imported_modules(path)
        if module.partition(".")[0] == "pyspark"
    ]
    assert wrong == []


def test_the_check_itself_sees_a_forbidden_import() -> None:
    assert not is_allowed("broker", "tidegate.client.connection")
    assert not is_allowed("settings", "tidegate.broker.router")
    assert is_allowed("settings", "tidegate.broker.settings.Limits")
    assert is_allowed("net", "tidegate.errors.TidegateError")
