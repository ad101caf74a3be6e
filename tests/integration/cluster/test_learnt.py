"""A head knows from a policy snapshot which topics burst together, before it has seen them."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_placement import _where
from tidegate.policy import PolicyStore

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _write(store: PolicyStore, version: str, rho: dict[tuple[str, str], float]) -> None:
    table = pa.table(
        {
            "topic_a": [one for one, _ in rho],
            "topic_b": [other for _, other in rho],
            "rho": list(rho.values()),
            "seconds": [3_600] * len(rho),
        }
    )
    store.write({"correlations": table}, input_from=NOON, input_to=NOON, version=version)
    store.activate(version)


async def _place(nodes: Cluster, client: str, topic: str) -> str:
    subscriber = await nodes.client(nodes.head, client)
    await subscriber.subscribe(topic)
    return _where(nodes, client)


async def test_topics_that_burst_together_are_placed_apart_as_the_newest_snapshot_says(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path / "policy")
    _write(store, "v1", {("a", "c"): 0.9})
    settings = {"policy__path": str(store.folder), "policy__poll": 0.1, "cluster__interval": 60.0}
    async with cluster(2, cluster__redirect=True, **settings) as nodes:
        balancer = member(nodes.head).balancer
        assert balancer is not None
        assert balancer.history.correlation("c", "a") == 0.9
        first = await _place(nodes, "sa", "a")
        second = await _place(nodes, "sb", "b")
        assert {first, second} == {"e0", "e1"}
        assert await _place(nodes, "sb2", "b") == second  # more load there than at the first,
        assert await _place(nodes, "sc", "c") == second  # and still the better place for this one
        _write(store, "v2", {("b", "d"): 0.95})
        await wait_until(lambda: balancer.history.correlation("b", "d") == 0.95)
        assert balancer.history.correlation("a", "c") == 0.0
        assert await _place(nodes, "sd", "d") == first
