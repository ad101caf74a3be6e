"""The small version of `python -m bench.soak migration` and `standby`: nodes are killed while clients move."""

from pathlib import Path

from bench.soak import migration, standby


def test_drains_survive_kills_of_every_node_and_nothing_is_lost_doubled_or_disordered(tmp_path: Path) -> None:
    found = migration.run_victims(
        clients=12,
        victims=["nobody", "head", "old edge", "new edge"],
        rate=1.0,
        seed=8,
        say=print,
        data=tmp_path,
    )
    assert found.rounds == 4
    assert found.kills == {"head": 1, "old edge": 1, "new edge": 1}
    assert (found.lost, found.doubled_qos2, found.disordered, found.unfinished) == (0, 0, 0, 0)
    assert found.delivered >= found.published > 0  # each topic has one subscriber here


def test_sessions_of_an_edge_that_is_killed_for_good_go_on_with_its_standby() -> None:
    found = standby.run(clients=8, rounds=1, seed=3, say=print, after=1.0)
    assert found.lost == 0
    assert found.new_sessions == 0
    # What was not acknowledged when it ended may have come as well.
    assert found.published * 8 <= found.delivered <= (found.published + standby.AT_ONCE) * 8
