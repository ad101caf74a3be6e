"""E3.6 run small: a real space, real clients, and a page from it."""

from tidegate.lab.active import real_page
from tidegate.lab.active.real_run import Plan, run
from tidegate.lab.active.variants import ACTIVE, VARIANTS
from tidegate.lab.experiment import Context


def test_clients_of_a_real_space_learn_of_updates_while_it_is_slowed() -> None:
    chosen = Plan(cases=(("C", 8, ACTIVE),), every=1.0, updates=2, slow=(1.0, 2.0), seeds=1)
    report = run(Context(is_quick=True, seeds=1), chosen)
    [row] = report["summary"]
    assert (row["workload"], row["m"], row["variant"]) == ("C", 8, ACTIVE)
    assert row["rate"]["mean"] > 0.0
    assert row["t_proc"]["mean"] > 0.0
    assert 0.0 <= row["missed"]["mean"] <= 1.0
    [table] = real_page.present(report).tables
    assert table.title == "Over sockets, workload C"


def test_every_variant_of_the_model_can_be_run_for_real() -> None:
    chosen = Plan(cases=())
    for variant in VARIANTS.values():
        assert chosen.policy(variant, 0.01).loop()
    assert chosen.times("A", 1) == [4.0, 8.0, 12.0]
    assert chosen.times("B", 1) == chosen.times("C", 1) != chosen.times("B", 2)
