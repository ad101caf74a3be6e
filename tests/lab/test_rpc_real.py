"""Paper 4 over sockets, small; what depends on the machine's speed is run, and its claim of speed not judged."""

import pytest
import uvloop

from tidegate.lab.experiment import Context, Part, Verdict
from tidegate.lab.rpc import functional, overlap, stall
from tidegate.lab.rpc.faults import soak

QUICK = Context(is_quick=True, only=Part.REAL)


@pytest.mark.parametrize("module", [functional, overlap], ids=lambda module: module.EXPERIMENT.name)
def test_an_experiment_holds_over_sockets(module) -> None:  # type: ignore[no-untyped-def]
    page = module.EXPERIMENT.present(module.EXPERIMENT.run(QUICK))
    assert [claim.text for claim in page.claims if claim.verdict is not Verdict.HOLDS] == []


@pytest.mark.serial
def test_a_stalled_gateway_harms_no_other() -> None:
    page = stall.EXPERIMENT.present(stall.EXPERIMENT.run(QUICK))
    assert page.claims[0].verdict is Verdict.HOLDS, page.claims[0].ours


@pytest.mark.parametrize("backend", ["mqtt", "rabbitmq+redis"])
def test_kills_lose_and_double_nothing(backend: str) -> None:
    victims = (
        ("forward router", "worker", "gateway", "broker") if backend == "mqtt" else ("back router", "Redis")
    )
    *kills, total = uvloop.run(soak(backend, rate=10.0, settle=1.0, victims=victims))
    assert [row["killed"] for row in kills] == list(victims)
    assert (total["unaccounted"], total["obeyed_twice"]) == (0, 0)
    assert total["acked"] + total["dead"] + total["answer_lost"] == total["tasks"] > 0
