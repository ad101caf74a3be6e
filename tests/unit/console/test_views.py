"""Cluster, calls, reports, spaces and settings, as the console reads them."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tidegate.accounts.rights import Rights
from tidegate.accounts.rights_file import read_rights_file
from tidegate.console import policies, reports
from tidegate.console.cluster import EVENTS, ClusterView
from tidegate.console.errors import ConsoleError, RoomMissing
from tidegate.console.feed import TOPICS
from tidegate.console.rooms import find_room, how_to_install
from tidegate.console.rpc import LONGEST, RpcView
from tidegate.console.settings import ConsoleSettings, is_loopback
from tidegate.console.spaces import read_load
from tidegate.console.watch import ALL_PUBLISHERS, CLUSTER, POLICY_VERSION, PULSE
from tidegate.testing.certificates import make_authority


def cluster(*messages: tuple[str, object]) -> ClusterView:
    view = ClusterView()
    for number, (name, content) in enumerate(messages):
        view.take(f"$SYS/cluster/{name}", json.dumps(content).encode(), float(number))
    return view


def test_a_head_tells_node_by_node_and_an_edge_all_at_once() -> None:
    one = {"role": "edge", "load": "LOW", "linked": True}
    for view in (cluster(("edge0", one)), cluster(("nodes", {"edge0": one}))):
        assert view.as_object()["nodes"] == [{"name": "edge0"} | one]


def test_what_happens_to_nodes_is_told_in_words() -> None:
    view = cluster(
        ("edge0", {"load": "LOW", "linked": True}),
        ("edge0", {"load": "HIGH", "linked": True}),
        ("edge0", {"load": "HIGH", "linked": False}),
        ("drain/edge0", {"node": "edge0", "state": "running", "moved": 0}),
        ("drain/edge0", {"node": "edge0", "state": "running", "moved": 4}),
        ("drain/edge0", {"node": "edge0", "state": "done", "moved": 4}),
        (
            "balancing",
            {"step": "idle", "edges": {"edge0": {"state": "OK", "uplink": 0.4, "waiting": {"t": 3}}}},
        ),
        (
            "balancing",
            {
                "step": "migrate",
                "phases": [{"number": 1, "edge": "a", "metric": "uplink", "moves": [["t", 3, "a", "b"]]}],
            },
        ),
        ("plan/edge0", {"node": "edge0", "targets": {"edge1": 2}, "stay": 0}),
    )
    words = [event["text"] for event in reversed(view.events)]
    assert words == [
        "edge0 is part of the cluster",
        "edge0: load LOW to HIGH",
        "edge0 is not reachable",
        "drain of edge0: running",
        "edge0: 4 clients moved away",
        "drain of edge0: done",
        "balancing: migrate",
        "a is in trouble (uplink): 3 clients of t from a to b",
    ]
    assert view.as_object()["plans"]["edge0"]["targets"] == {"edge1": 2}


def test_progress_of_a_drain_is_one_line_and_edges_tell_how_full_they_are() -> None:
    view = cluster(
        ("edge0", {"load": "LOW"}),
        (
            "balancing",
            {"step": "idle", "edges": {"edge0": {"state": "OK", "uplink": 0.4, "waiting": {"t": 3}}}},
        ),
        *(
            ("drain/edge0", {"node": "edge0", "state": "running", "moved": each, "total": 3})
            for each in range(4)
        ),
    )
    assert view.events[0]["text"] == "edge0: 3 of 3 clients moved away"
    assert len(view.events) == 3
    (node,) = view.as_object()["nodes"]
    assert (node["utilisation"], node["waiting"]) == (0.4, {"t": 3})


def texts(view: ClusterView) -> list[str]:
    return [event["text"] for event in reversed(view.events)]


def test_a_node_that_was_removed_is_off_the_map_with_its_drain_and_plan() -> None:
    view = cluster(
        ("edge0", {"load": "LOW", "linked": True}),
        ("edge1", {"load": "LOW", "linked": True}),
        ("plan/edge0", {"node": "edge0", "targets": {"edge1": 2}, "stay": 0}),
        ("drain/edge0", {"node": "edge0", "state": "done", "moved": 0}),
    )
    view.take("$SYS/cluster/edge0", b"", 9.0)
    view.take("$SYS/cluster/edge7", b"", 9.0)  # of whom we never heard
    found = view.as_object()
    assert [node["name"] for node in found["nodes"]] == ["edge1"]
    assert (found["plans"], found["drains"]) == ({}, {})
    assert texts(view)[-1] == "edge0 has left the cluster"
    view.take("$SYS/cluster/drain/edge1", b'{"node": "edge1", "state": "running"}', 10.0)
    view.take("$SYS/cluster/drain/edge1", b"", 11.0)
    assert view.drains == {}
    assert list(view.nodes) == ["edge1"]


def test_the_document_of_an_edge_has_all_nodes_there_are() -> None:
    state = {"load": "LOW", "linked": True}
    view = cluster(("nodes", {"head": state, "edge0": state, "edge1": state}), ("nodes", {"head": state}))
    assert list(view.nodes) == ["head"]
    assert texts(view)[-2:] == ["edge0 has left the cluster", "edge1 has left the cluster"]


def test_what_is_told_again_on_another_connection_is_no_news() -> None:
    messages: list[tuple[str, object]] = [
        ("edge0", {"load": "LOW", "linked": True}),
        ("drain/edge0", {"node": "edge0", "state": "done", "moved": 4}),
        ("balancing", {"step": "migrate", "phases": [{"number": 1, "moves": [["t", 3, "a", "b"]]}]}),
    ]
    view = cluster(*messages)
    said = texts(view)
    for _ in range(2):
        view.clear()
        view.clear()  # the first attempt to connect fails
        for name, content in messages:
            view.take(f"$SYS/cluster/{name}", json.dumps(content).encode(), 9.0)
    assert texts(view) == said
    view.clear()
    view.take("$SYS/cluster/edge0", b'{"load": "HIGH", "linked": true}', 10.0)
    view.take("$SYS/cluster/edge1", b'{"load": "LOW", "linked": true}', 11.0)
    assert texts(view)[len(said) :] == ["edge0: load LOW to HIGH", "edge1 is part of the cluster"]


def test_nonsense_about_a_cluster_is_left_out_and_events_are_bounded() -> None:
    view = cluster(("edge0", []), ("nodes", {"x": 1}), ("drain/e", "now"))
    view.take("$SYS/cluster/edge0", b"\xff", 0.0)
    assert view.as_object()["nodes"] == []
    for number in range(EVENTS * 2):
        view.take("$SYS/cluster/e", json.dumps({"load": str(number)}).encode(), 0.0)
    assert len(view.events) == EVENTS


def test_dead_tasks_come_and_go() -> None:
    view = RpcView("shop")
    task = {"id": "t1", "kind": "price", "reason": "no route", "attempt": 5}
    view.take("tide/rpc/shop/dead/tasks/t1", json.dumps(task).encode(), 0.0)
    view.take("tide/rpc/shop/dead/tasks/t2", b"nonsense", 0.0)
    (found,) = view.as_object(0.0)["dead"]
    assert (found["id"], found["reason"]) == ("t1", "no route")
    view.take("tide/rpc/shop/dead/tasks/t1", b"", 0.0)
    assert view.as_object(0.0)["dead_total"] == 0


def test_a_dead_task_is_known_by_its_own_name_and_kept_as_far_as_it_is_shown() -> None:
    view = RpcView("shop")
    task = b'{"id": "t1", "kind": 7, "reason": "%s", "created": NaN, "attempt": 1e400, "body": {"x": 1}}'
    view.take("tide/rpc/shop/dead/tasks/letter-1", task % (b"r" * 10_000), 0.0)
    (found,) = view.as_object(0.0)["dead"]
    assert (found["id"], found["kind"], found["created"], found["attempt"]) == ("t1", "", None, 0)
    assert len(found["reason"]) == LONGEST + 1
    assert len(json.dumps(list(view.dead.values()), allow_nan=False)) < 500
    view.take("tide/rpc/shop/dead/tasks/letter-2", b'{"id": 1}', 0.0)
    assert [each["id"] for each in view.as_object(0.0)["dead"]] == ["t1", "letter-2"]
    view.take("tide/rpc/shop/dead/tasks/letter-1", b"", 0.0)
    assert view.as_object(0.0)["dead_total"] == 1


@pytest.mark.skipif(find_room("rpc.recording") is None, reason="the RPC room is not installed")
def test_outcomes_that_strangers_make_up_are_counted_together() -> None:
    view = RpcView("main")
    for number, outcome in enumerate(["ack", *(f"made up {each}" for each in range(50)), ""]):
        row = [1.0, "reply", f"key-{number}", "dev", "part", "gw", outcome]
        view.take("tide/rpc/main/telemetry/hops", json.dumps([row]).encode(), 1.0)
    assert view.as_object(5.0)["outcomes"] == {"other": 51, "ack": 1}


@pytest.mark.parametrize(
    "row",
    [
        [1.0, "reply", ["x"], "d", "p"],
        [1e20, "reply", "x", "d", "p"],
        [1.0, "reply", "x" * 100_000, "d", "p"],
        [],
        7,
    ],
)
def test_hops_that_are_none_are_left_out(row: object) -> None:
    view = RpcView("main")
    view.take("tide/rpc/main/telemetry/hops", json.dumps([row]).encode(), 1.0)
    view.take("tide/rpc/main/telemetry/hops", b"[" * 100_000, 1.0)
    found = view.as_object(5.0)
    assert (found["heard"], found["calls"]) == (0, 0)


@pytest.mark.skipif(find_room("rpc.recording") is None, reason="the RPC room is not installed")
def test_hops_become_times_and_outcomes() -> None:
    view = RpcView("main")
    steps = [(0.0, "call"), (0.002, "forward"), (0.003, "published"), (0.010, "gateway"), (0.050, "reply")]
    rows = [[at, step, "key-1", "dev", "part", "gw", "ack" if step == "reply" else ""] for at, step in steps]
    view.take("tide/rpc/main/telemetry/hops", json.dumps(rows).encode(), 1.0)
    found = view.as_object(5.0)
    assert found["outcomes"] == {"ack": 1}
    times = {hop["name"]: hop["p50"] for hop in found["hops"]}
    assert (times["router"], times["gateway"], times["total"]) == (2.0, 7.0, 50.0)


def test_a_load_announcement_is_read_as_far_as_it_is_understood() -> None:
    assert read_load("proc=0.012;queue=x;limit=nan;cap=80;new=1") == {"processing": 0.012, "capacity": 80.0}
    assert read_load("") == {}


def make_reports(folder: Path) -> tuple[Path, ...]:
    lab = folder / "backoff"
    lab.mkdir()
    (lab / "e1.json").write_text("{}")
    (lab / "plot.png").write_bytes(b"\x89PNG")
    (lab / "README.md").write_text(
        "# Back-off\n\n<script>alert(1)</script>\n\n![plot](plot.png) ![other](http://evil.example/x.png) "
        "[bad](javascript:alert(1))\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n"
    )
    pipeline = folder / "lake" / "report"
    pipeline.mkdir(parents=True)
    (pipeline / "report.html").write_text("<p>found</p>")
    (folder / "README.md").write_text("# Not a report: no results beside it")
    return (folder,)


def test_reports_are_found_and_rendered_without_any_html_of_their_own(tmp_path: Path) -> None:
    folders = make_reports(tmp_path)
    found = {report.kind: report for report in reports.find(folders)}
    assert {kind: report.title for kind, report in found.items()} == {
        "lab": "Back-off",
        "pipeline": "Pipeline: lake/report",
    }
    html = reports.render(found["lab"])
    assert "<script" not in html
    assert "evil.example" not in html
    assert 'href="javascript' not in html
    assert f'src="/reports/{found["lab"].name}/plot.png"' in html
    assert '<td class="right">2</td>' in html
    assert "style=" not in html


def test_the_papers_are_listed_by_number_with_the_time_that_they_were_measured(tmp_path: Path) -> None:
    folders = make_reports(tmp_path)
    for number, name in ((10, "late"), (2, "cluster"), (1, "early")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "e.json").write_text("{}")
        times = (f"2026-11-{16 + each}T02:26:31+00:00" for each in (2, 0, 1))
        measured = "\n\n".join(f"Measured {time} in 3 s at commit abc." for time in times)
        (folder / "README.md").write_text(f"# {number}. {name}\n\n{measured}\n\nMeasured 2026-13-99 in no time\n")
    found = [report.as_object() for report in reports.find(folders)]
    assert {each["title"] for each in found[:2]} == {"Back-off", "Pipeline: lake/report"}
    assert [each["title"] for each in found[2:]] == ["1. early", "2. cluster", "10. late"]
    assert {each["measured"] for each in found[:2]} == {None}
    assert {each["measured"] for each in found[2:]} == {
        ("2026-11-16T02:26:31+00:00", "2026-11-18T02:26:31+00:00")
    }


def test_a_report_that_is_gone_since_it_was_found_is_no_fault_of_ours(tmp_path: Path) -> None:
    (lab,) = [each for each in reports.find(make_reports(tmp_path)) if each.kind == "lab"]
    shutil.rmtree(lab.path.parent)
    assert lab.as_object()["title"] == "Back-off"
    assert reports.read_picture(lab, "plot.png") is None
    with pytest.raises(RoomMissing):
        reports.render(lab)


@pytest.mark.parametrize(
    "file", ["e1.json", "../../secret.png", "..", ".hidden.png", "nothing.png", "link.png"]
)
def test_only_pictures_beside_a_report_are_given_away(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    folder = tmp_path / "results"
    folder.mkdir()
    (report,) = [each for each in reports.find(make_reports(folder)) if each.kind == "lab"]
    (report.path.parent / "link.png").symlink_to(tmp_path / "secret.png")
    assert reports.read_picture(report, file) is None
    assert reports.read_picture(report, "plot.png") == (b"\x89PNG", "image/png")
    assert reports.get((folder,), "../../etc") is None


def test_what_was_not_named_is_missing_with_a_hint() -> None:
    for work in (
        lambda: reports.find(()),
        lambda: policies.describe(None),
        lambda: reports.describe_lake(""),
    ):
        with pytest.raises(RoomMissing) as caught:
            work()
        assert caught.value.hint


@pytest.mark.parametrize("extra", ["lake", "rpc"])
def test_how_to_install_an_extra_is_right_for_a_copy_of_the_repository_and_for_a_wheel(extra: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert extra in project["project"]["optional-dependencies"]
    hint = how_to_install(extra)
    assert f"'.[{extra}]'" in hint
    assert f"'tidegate[{extra}]'" in hint


@pytest.mark.parametrize(
    "host, expected",
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.4", "example.org", "")),
    ],
)
def test_which_addresses_are_this_machines_own(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "password_file": Path("a")},
        {"host": "0.0.0.0", "certfile": Path("c"), "keyfile": Path("k")},
        {"certfile": Path("c")},
        {"operators": frozenset({"ada"})},
    ],
)
def test_settings_that_would_let_strangers_in_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConsoleError):
        ConsoleSettings(**fields).check()


def test_settings_that_are_safe_are_taken(tmp_path: Path) -> None:
    ConsoleSettings().check()
    issued = make_authority(tmp_path).issue("localhost")
    files = {"certfile": issued.certificate, "keyfile": issued.key}
    ConsoleSettings(host="0.0.0.0", password_file=Path("a"), **files).check()


def test_the_rights_in_the_manual_are_all_that_a_console_needs(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "console.md").read_text(encoding="utf-8")
    found = re.search(r"```\n(user console\n.*?)```", manual, re.DOTALL)
    assert found is not None
    file = tmp_path / "rights.txt"
    file.write_text(found[1], encoding="utf-8")
    rights = Rights(read_rights_file(file)).of("console", "console-1")
    read = (*TOPICS, PULSE, ALL_PUBLISHERS, POLICY_VERSION, CLUSTER, *RpcView("main").topics)
    assert [each for each in (*read, "tidegate/reply/1/2") if not rights.may_subscribe(each)] == []
    written = ("$tide/control/pin", "$tide/cluster/drain", "tidegate/probe/1", "tide/space/home/query")
    assert [each for each in (*written, "tide/rpc/main/dead/tasks/1") if not rights.may_write(each)] == []
