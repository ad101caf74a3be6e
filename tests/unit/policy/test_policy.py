"""Policy snapshots: written whole, checked before they are taken, bounded by settings, and there is a way back."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tidegate.cli.main import build_app
from tidegate.policy import PolicyError, PolicySettings, PolicyStore
from tidegate.policy import store as store_module
from tidegate.policy.compare import compare
from tidegate.policy.lookup import Names
from tidegate.policy.snapshot import Snapshot, load
from tidegate.policy.watch import PolicyWatcher

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)


def baselines(**rates: float) -> pa.Table:
    count = len(rates)
    return pa.table(
        {
            "client_id": list(rates),
            "rate": list(rates.values()),
            "dispersion": [0.5] * count,
            "limit": [2.0 * rate for rate in rates.values()],
            "rank": list(range(1, count + 1)),
            "messages": [100] * count,
        }
    )


def members(**speeds: float) -> pa.Table:
    count = len(speeds)
    return pa.table(
        {
            "group": ["g"] * count,
            "client_id": list(speeds),
            "service": list(speeds.values()),
            "variability": [0.0] * count,
            "messages": [10] * count,
        }
    )


def write(store: PolicyStore, version: str, **tables: pa.Table) -> None:
    store.write(tables, input_from=NOON, input_to=NOON + timedelta(hours=1), version=version)


@pytest.fixture
def store(tmp_path: Path) -> PolicyStore:
    found = PolicyStore(tmp_path / "policy")
    write(found, "v1", baselines=baselines(a=1.0, b=10.0), members=members(m=0.02))
    write(found, "v2", baselines=baselines(b=30.0, c=5.0), members=members(m=0.05))
    return found


def test_a_snapshot_says_what_was_written(store: PolicyStore) -> None:
    snapshot = load(store, "v1", PolicySettings(limits=True, limit_floor=3.0))
    assert (len(snapshot.priors), list(snapshot.priors)) == (2, ["a", "b"])
    prior = snapshot.priors["b"]
    assert (prior.rate, prior.dispersion, prior.limit, prior.rank) == (10.0, 0.5, 20.0, 2)
    assert snapshot.priors["a"].limit == 3.0  # the floor
    assert snapshot.priors.get("z") is None
    assert snapshot.speeds["g", "m"] == 0.02
    assert ("", "m") not in snapshot.speeds


def test_settings_bound_what_a_snapshot_may_change(store: PolicyStore) -> None:
    usual = load(store, "v1", PolicySettings(rate_ceiling=4.0))
    assert (usual.priors["b"].rate, usual.priors["b"].limit) == (4.0, 0.0)
    none = load(store, "v1", PolicySettings(baselines=False, members=False))
    assert (len(none.priors), len(none.speeds)) == (0, 0)
    quotas = load(store, "v1", PolicySettings(baselines=False, limits=True)).priors["b"]
    assert (quotas.rate, quotas.limit) == (0.0, 20.0)
    with pytest.raises(PolicyError, match="2 publishers"):
        load(store, "v1", PolicySettings(max_clients=1))
    with pytest.raises(PolicyError, match="s old"):
        load(store, "v1", PolicySettings(max_age=60.0), now=datetime.now(UTC) + timedelta(hours=1))


@given(st.sets(TEXT, max_size=40), TEXT)
@example({"\x80"}, "")
@settings(max_examples=60)
def test_names_are_found_as_a_dictionary_finds_them(names: set[str], other: str) -> None:
    ordered = sorted(names, key=str.encode)
    table = Names(pa.array(ordered, pa.string()))
    for place, name in enumerate(ordered):
        assert table.find(name) == place
        assert table[place] == name
    assert (table.find(other) >= 0) == (other in names)


def test_one_is_current_and_there_is_a_way_back(store: PolicyStore) -> None:
    assert store.current() is None
    with pytest.raises(PolicyError, match="nothing to go back to"):
        store.rollback()
    for version in ("v1", "v2", "v2"):
        store.activate(version)
        assert store.current() == version
    write(store, "v3", baselines=baselines(a=1.0))
    store.activate("v3")
    assert store.rollback().version == "v2"
    assert store.rollback().version == "v1"
    assert store.current() == "v1"
    with pytest.raises(PolicyError, match="nothing to go back to"):
        store.rollback()


def names(store: PolicyStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir() if path.is_dir())


def timed(minute: int) -> str:
    return f"20260105T12{minute:02}00.000000"


def test_snapshots_older_than_the_history_are_removed(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "HISTORY_LINES", 3)
    (store.folder / f"_{timed(0)}.77").mkdir()  # a draft whose writer was killed
    for minute in range(6):
        write(store, timed(minute), baselines=baselines(a=1.0))
        if minute != 3:  # written, and not yet wanted: it is younger than the history, then older
            store.activate(timed(minute))
        assert timed(max(0, minute - 3)) in names(store)
    assert store.history() == [timed(1), timed(2), timed(4)]
    assert names(store) == [*(timed(minute) for minute in range(1, 6)), "v1", "v2"]
    store.activate(timed(1))  # old, and current
    for minute in range(6, 10):
        write(store, timed(minute), baselines=baselines(a=1.0))
        store.activate(timed(minute))
    assert names(store) == [*(timed(minute) for minute in range(6, 10)), "v1", "v2"]
    assert [store.rollback().version for _ in range(3)] == [timed(8), timed(7), timed(6)]


def test_nothing_is_removed_before_the_history_is_full(store: PolicyStore) -> None:
    for minute in range(3):
        write(store, timed(minute), baselines=baselines(a=1.0))
    store.activate(timed(1))
    store.activate(timed(2))
    assert timed(0) in store.versions()


def test_an_old_snapshot_that_cannot_be_removed_is_no_error(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *_: object, **__: object) -> None:
        if not path.name.startswith("_"):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store_module, "HISTORY_LINES", 1)
    for minute in range(3):
        write(store, timed(minute), baselines=baselines(a=1.0))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", fail)
        for minute in range(3):
            store.activate(timed(minute))
    assert store.current() == timed(2)
    assert timed(0) in names(store)
    assert timed(0) not in store.versions()  # half of one is none
    store.activate(timed(1))
    assert timed(0) not in names(store)  # the next one removes the rest


@pytest.mark.parametrize("when", ["before", "verified"])
def test_a_node_keeps_its_policy_when_one_vanishes_while_it_is_read(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    taken: list[Snapshot] = []
    verify = PolicyStore.verify

    def vanish(self: PolicyStore, version: str) -> Any:
        found = verify(self, version) if when == "verified" else None
        shutil.rmtree(store.folder / version)
        return found or verify(self, version)

    async def follow() -> None:
        watcher = PolicyWatcher(PolicySettings(path=str(store.folder)), taken.append)
        store.activate("v1")
        await watcher.look()
        store.activate("v2")
        with monkeypatch.context() as patch:
            patch.setattr(PolicyStore, "verify", vanish)
            await watcher.look()
        assert (watcher.version, watcher.faults) == ("v1", 1)
        shutil.rmtree(store.folder / "v1")  # it is in memory
        assert taken[-1].priors["b"].rate == 10.0
        write(store, "v3", baselines=baselines(a=7.0))
        store.activate("v3")
        await watcher.look()
        assert watcher.version == "v3"

    asyncio.run(follow())


@pytest.mark.parametrize("attempt", ["rollback", "activate"])
def test_a_crash_between_the_two_files_loses_no_step_back(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch, attempt: str
) -> None:
    write(store, "v3", baselines=baselines(a=1.0))
    write(store, "v4", baselines=baselines(a=1.0))
    for version in ("v1", "v2", "v3"):
        store.activate(version)
    replace = PolicyStore._replace
    calls: list[str] = []

    def die_at_the_second(self: PolicyStore, name: str, text: str) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(self, name, text)

    act = {"rollback": store.rollback, "activate": lambda: store.activate("v4")}[attempt]
    with monkeypatch.context() as patch:
        patch.setattr(PolicyStore, "_replace", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            act()
    if attempt == "rollback":
        assert store.current() == "v2"
        assert store.rollback().version == "v1"
    else:
        assert store.current() == "v3"
        store.activate("v4")
        assert store.history() == ["v1", "v2", "v3"]
        assert [store.rollback().version for _ in range(3)] == ["v3", "v2", "v1"]
    with pytest.raises(PolicyError, match="nothing to go back to"):
        store.rollback()


def test_a_pointer_that_makes_no_sense_can_be_replaced(store: PolicyStore) -> None:
    store.activate("v1")
    (store.folder / "CURRENT").write_text("../..\n")
    with pytest.raises(PolicyError):
        store.current()
    store.activate("v2")
    assert store.current() == "v2"


def test_a_failed_change_leaves_no_draft(store: PolicyStore) -> None:
    (store.folder / "CURRENT").mkdir()
    with pytest.raises(PolicyError, match="cannot be written"):
        store.activate("v1")
    assert [path.name for path in store.folder.glob("_*")] == []


def test_rows_without_a_number_are_compared_all_the_same() -> None:
    data = pa.table({"client_id": ["a"], "rate": pa.array([None], pa.float64())})
    assert compare(data, data, "baselines", "rate", 1.5)["new"] == [("a", "-")]


def test_a_snapshot_never_changes_and_a_failed_one_leaves_nothing(store: PolicyStore) -> None:
    with pytest.raises(PolicyError, match="of this name"):
        write(store, "v1", baselines=baselines(a=2.0))
    with pytest.raises(PolicyError, match="unknown table"):
        write(store, "v9", nonsense=baselines(a=2.0))
    with pytest.raises(PolicyError, match="wrong type"):
        write(store, "v9", baselines=pa.table({"client_id": ["a"], "rate": ["fast"]}))
    for name in ("", "../x", "_hidden", "a/b", "x" * 65, "a\nb"):
        with pytest.raises(PolicyError):
            write(store, name or " ", baselines=baselines(a=2.0))
    assert sorted(path.name for path in store.folder.iterdir()) == ["v1", "v2"]


def damage_nothing(folder: Path) -> None:
    pass


def flip(folder: Path) -> None:
    path = folder / "baselines.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(folder: Path) -> None:
    path = folder / "baselines.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def remove(folder: Path) -> None:
    (folder / "baselines.parquet").unlink()


def no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def edit(**changes: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        found = json.loads(path.read_text())
        path.write_text(json.dumps(found | changes))

    return change


def nonsense(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


@pytest.mark.parametrize(
    "damage",
    [
        flip, cut, remove, no_manifest, nonsense, edit(format=2), edit(version="v2"), edit(tables=3), edit(created="x"),
        edit(created="2026-01-05T12:00:00"),
        edit(tables={"baselines": {"path": "../v2/baselines.parquet", "rows": 1, "bytes": 1, "sha256": ""}}),
    ],
)  # fmt: skip
def test_a_damaged_snapshot_is_neither_loaded_nor_applied(store: PolicyStore, damage: Any) -> None:
    store.activate("v2")
    damage(store.folder / "v1")
    for attempt in (lambda: load(store, "v1", PolicySettings()), lambda: store.activate("v1")):
        with pytest.raises(PolicyError) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert store.current() == "v2"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rate": [float("nan"), 1.0]}, "negative or not a number"),
        ({"rate": [-1.0, 1.0]}, "negative or not a number"),
        ({"rate": [None, 1.0]}, "has no rate"),
        ({"client_id": ["a", "a"]}, "comes twice"),
        ({"client_id": ["a", None]}, "no name"),
    ],
)
def test_rows_that_make_no_sense_are_refused(
    store: PolicyStore, change: dict[str, Any], problem: str
) -> None:
    data = baselines(a=1.0, b=2.0)
    for name, values in change.items():
        data = data.set_column(data.column_names.index(name), name, pa.array(values))
    manifest = store.manifest("v1")
    path = store.folder / "v1" / "baselines.parquet"
    pq.write_table(data, path)
    from hashlib import sha256

    entry = {
        "path": path.name,
        "rows": 2,
        "bytes": path.stat().st_size,
        "sha256": sha256(path.read_bytes()).hexdigest(),
    }
    edit(tables={"baselines": entry})(store.folder / manifest.version)
    with pytest.raises(PolicyError, match=problem):
        load(store, "v1", PolicySettings())


def run(*arguments: str) -> str:
    done = CliRunner().invoke(build_app(arguments), list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0
    return str(done.stdout)


def test_the_commands_show_compare_apply_and_go_back(store: PolicyStore) -> None:
    folder = str(store.folder)
    assert run("policy", "apply", folder, "v1") == "current v1\n"
    assert run("policy", "apply", folder, "v2") == "current v2\n"
    assert [line.split("\t")[0] for line in run("policy", "show", folder).splitlines()] == [
        "version",
        "v1",
        "v2*",
    ]
    assert "baselines\t2 rows" in run("policy", "show", folder, "v1")
    assert run("policy", "show", folder, "--client", "c").splitlines()[1].split("\t")[:2] == ["c", "5"]
    assert len(run("policy", "show", folder, "v1", "--table", "baselines", "--limit", "1").splitlines()) == 2
    lines = run("policy", "diff", folder, "v1").splitlines()
    assert "baselines\tnew\tc\t5" in lines
    assert "baselines\tgone\ta\t1" in lines
    assert "baselines\tchanged\tb\t10\t30" in lines
    assert "members\tchanged\tg\tm\t0.02\t0.05" in lines
    assert run("policy", "rollback", folder) == "current v1\n"


@pytest.mark.parametrize(
    "arguments",
    [("show", "/no/such"), ("apply", "{}", "v9"), ("apply", "{}", "../x"), ("show", "{}", "--table", "x")],
)
def test_what_is_not_there_is_said_in_one_line(store: PolicyStore, arguments: Sequence[str]) -> None:
    with pytest.raises(PolicyError):
        run("policy", *(argument.format(store.folder) for argument in arguments))
