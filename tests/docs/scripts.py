"""What a walk through a page needs besides the page: files a reader would have, and lines that cannot be typed here.

Every line that is left out is named with its reason, or with the test that runs it; a test looks that nothing on the
list is stale and that each named test exists.
"""

import re
from dataclasses import dataclass

from tests.docs.pages import Step, blocks, page


@dataclass(frozen=True)
class Unrun:
    """Lines that are not typed, and why, or which test does it; `page` and `line` are regular expressions."""

    page: str
    line: str
    why: str
    test: str = ""


# Files that a page speaks of, and that its reader has.
PREPARED: dict[str, dict[str, str]] = {
    "docs/operating.md": {
        "harbour.toml": blocks(page("operating.md"), "toml")[0],
        "etc/tidegate/tidegate.toml": "[[listeners]]\nport = 1884\n",
    },
    "docs/migrating.md": {"etc/mosquitto/mosquitto.conf": "listener 1884 127.0.0.1\nallow_anonymous true\n"},
    "docs/security.md": {"etc/tidegate/.keep": ""},
    "docs/cluster.md": {"etc/tidegate/.keep": "", "var/lib/.keep": ""},
    "docs/deploying.md": {"rights": "topic readwrite #\n"},
}
# What a page takes for granted; STOP ends the nodes that were started.
STOP = "stop"
_FILLED = ["tidegate serve --data {}", "tidegate pub -q 1 -r -t tide/level -m 3.2", STOP]
BEFORE: dict[str, list[str]] = {
    "docs/backoff.md": ["tidegate serve"],
    "docs/client.md": ["tidegate serve"],
    "docs/durability.md": [line.format("data") for line in _FILLED],
    "docs/monitoring.md": ["tidegate serve"],
    "docs/policy.md": ["tidegate lake generate --rows 20000 --hours 24 lake"],
    "docs/security.md": ["export SECRET=correct-horse"],
    "docs/operating.md": [
        "mkdir -p var/lib",
        *(line.format("var/lib/tidegate") for line in _FILLED),
        "tidegate serve",
    ],
}
# What a line stands for: `make run` is this in an environment that has been made, which is where tests run; a password
# is asked for at a terminal; `top` goes on in one; folders of the system are folders of the walk.
_SUBSTITUTES: tuple[tuple[str, str], ...] = (
    (r"make run", "tidegate serve --console"),
    (r"(\S*tidegate passwd \S+ \w+( --scram)?)( +#.*)?", r"printf 'correct horse' | \1 --password-stdin"),
    (r"tidegate top( --view groups)?", r"tidegate top --once\1"),
    (r"tidegate lake generate --rows 1000000 --hours 72 (\w+).*", r"tidegate lake generate --rows 20000 --hours 24 \1"),
    (r"tidegate bench pairs --seconds 5", "tidegate bench pairs --seconds 1"),
    (r"tidegate store import backup.jsonl /var/lib/tidegate", "tidegate store import backup.jsonl var/lib/restored"),
)
_FOLDERS = re.compile(r"(?<![\w.])/(etc|var/lib)/")

_FOREIGN = "needs another machine, or names one that does not exist"
_SYSTEM = "changes the system it runs on"
UNRUN = (
    Unrun(
        r"README.md|docs/\w+.md",
        r"python3 -m venv .*|\S*pip install .*|python -m build .*",
        "downloads packages",
        "tests/packaging/test_wheel.py::test_the_wheel_runs_where_it_is_installed",
    ),
    Unrun(
        r"README.md|docs/install.md",
        r"make (check|test|long|bench|docs|attack)\b.*",
        "runs the tests that this is one of, or for long",
        "tests/docs/test_walks.py::test_targets_of_make_exist",
    ),
    Unrun(
        r"docs/papers/backoff.md",
        r"tidegate lab run e1.1-traffic --quick",
        "takes long and is typed on docs/lab.md",
        "tests/docs/test_walks.py::test_a_page_can_be_typed",
    ),
    Unrun(r"docs/install.md", r"apt-get .*", _SYSTEM),
    Unrun(r"docs/install.md", r"man .*", "needs a terminal and a pager"),
    Unrun(
        r"docs/deploying.md",
        r"install .*|systemd-sysusers|systemctl .*|chown .*|/opt/.*",
        _SYSTEM,
        "tests/packaging/test_service_files.py::test_the_unit_starts_what_exists",
    ),
    Unrun(
        r"docs/deploying.md",
        r"podman .*",
        "needs an engine for containers",
        "tests/packaging/test_service_files.py::test_the_container_starts_a_node_as_somebody_who_may_write_its_data",
    ),
    Unrun(
        r"docs/deploying.md",
        r"(helm|kubectl) .*",
        "needs a cluster of Kubernetes",
        "tests/packaging/test_helm.py::test_the_settings_load_and_match_ports_and_mounts",
    ),
    Unrun(r"docs/operating.md", r"systemctl .*", _SYSTEM),
    Unrun(
        r"docs/cluster.md",
        r"tidegate serve --role .*",
        _FOREIGN,
        "tests/e2e/test_cluster.py::test_a_second_head_takes_over_when_the_first_is_killed",
    ),
    Unrun(
        r"docs/(console|client|monitoring|migrating).md",
        r"(tidegate|python) .*\b(broker|old|ops).example\b.*",
        _FOREIGN,
        "tests/docs/test_guide_programs.py::test_retained_messages_are_copied",
    ),
    Unrun(
        r"docs/console.md",
        r"tidegate serve --config .*",
        "needs a settings file with accounts of the reader",
        "tests/console/test_serve.py::*",
    ),
    Unrun(
        r"docs/console.md",
        r"tidegate clients .*",
        "names a publisher of the reader",
        "tests/e2e/test_clients.py::*",
    ),
    Unrun(
        r"docs/rpc.md",
        r"tidegate rpc --backend .*",
        "needs RabbitMQ and Redis",
        "tests/e2e/test_rpc.py::test_parts_wait_for_their_broker",
    ),
    Unrun(
        r"docs/rpc.md",
        r"tidegate rpc (dead replay TASK|trace) .*",
        "names what the reader has seen",
        "tests/e2e/test_rpc.py::test_a_call_from_the_command_line_and_its_trace",
    ),
    Unrun(
        r"docs/policy.md",
        r"tidegate policy (diff|apply|rollback|show .*--client) .*",
        "names versions and clients that the reader has",
        "tests/unit/policy/*",
    ),
    Unrun(r"docs/learning.md", r"tidegate serve --set policy.path=fleet/_policy", "is the other of two ways"),
    Unrun(
        r"docs/pipeline.md",
        r"tidegate pipeline run --lake s3a.*|spark-submit .*",
        "needs a cluster of Spark",
        "tests/pipeline/test_cluster.py::test_a_cluster_finds_what_one_process_finds",
    ),
    Unrun(
        r"docs/lab.md",
        r"tidegate lab (run backoff|report)\b.*",
        "takes hours, or shows what took hours",
        "tests/lab/test_lab.py::test_the_command_lists_runs_and_reports",
    ),
)
# Walks in which something must be done within a given time, on a machine that is not busy with other tests.
SERIAL = re.compile(r"docs/cluster.md")
# Walks that start Spark or an experiment: left to `make long`.
LONG = re.compile(r"docs/(learning|pipeline|stream|policy|backoff).md")


def unrun_reason(page: str, step: Step) -> Unrun | None:
    """The entry that says why a line is not typed, or None if it is."""
    found = [each for each in UNRUN if re.fullmatch(each.page, page) and re.fullmatch(each.line, step.command)]
    return found[0] if found else None


def typed(command: str) -> str:
    """The line as it is typed here."""
    for line, substitute in _SUBSTITUTES:
        if re.fullmatch(line, command):
            command = re.sub(line, substitute, command)
    return _FOLDERS.sub(r"\1/", command)
