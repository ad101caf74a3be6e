"""What nodes tell each other, without a network."""

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.bare_core import bare_core
from tidegate.broker.durable import packet_identifier
from tidegate.broker.hooks import ConnectRequest
from tidegate.broker.index import Subscription
from tidegate.broker.message import Message
from tidegate.broker.session import Session
from tidegate.cluster import wire
from tidegate.cluster.agent import MAX_TOPICS, EdgeAgent, edge_of, plain
from tidegate.cluster.interest import Interest, filter_text, is_shared_with_others
from tidegate.cluster.settings import Role, parse_budgets
from tidegate.cluster.transfer import _next_seq, parts
from tidegate.flow.balance import Bundle, Edge
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.packets import Packet, Subscribe, Unsubscribe
from tidegate.mqtt.properties import Property
from tidegate.mqtt.reader import PacketReader
from tidegate.settings import SettingsError, load_settings


def _subscription(topic_filter: bytes, share: str = "") -> Subscription:
    return Subscription(cast(Any, None), topic_filter, 1, share=share)


def _packets(interest: Interest, keys: dict[tuple[str, bytes], bool]) -> list[Packet]:
    return PacketReader(5).feed(b"".join(interest.packets(keys, count(1))))


def test_a_filter_is_told_once_however_many_want_it_and_until_the_last_is_gone() -> None:
    interest = Interest()
    for _ in range(3):
        interest.note(_subscription(b"a"), True)
    assert interest.changed == {("", b"a"): True}
    interest.changed.clear()
    for _ in range(2):
        interest.note(_subscription(b"a"), False)
    assert interest.changed == {}
    interest.note(_subscription(b"a"), False)
    assert interest.changed == {("", b"a"): False}
    assert len(interest) == 0
    interest.note(_subscription(b"a"), False)  # nobody had it: nothing to tell
    assert interest.changed == {("", b"a"): False}


def test_filters_go_in_few_packets_and_groups_with_an_identifier_each() -> None:
    interest = Interest()
    keys = {("", b"t/%d" % n): True for n in range(450)} | {
        ("g", b"job"): True,
        ("h", b"job"): True,
        ("", b"x"): False,
    }
    found = _packets(interest, keys)
    plain_ones = [p for p in found if isinstance(p, Subscribe) and not p.properties]
    assert [len(packet.subscriptions) for packet in plain_ones] == [200, 200, 50]
    groups = [p for p in found if isinstance(p, Subscribe) and p.properties]
    assert [p.subscriptions[0].topic_filter for p in groups] == ["$share/g/job", "$share/h/job"]
    identifiers = [p.properties[Property.SUBSCRIPTION_IDENTIFIER][0] for p in groups]
    assert [interest.group(identifier) for identifier in identifiers] == [("g", b"job"), ("h", b"job")]
    assert [p.topic_filters for p in found if isinstance(p, Unsubscribe)] == [["x"]]
    for packet in plain_ones:
        for each in packet.subscriptions:
            assert (each.qos, each.retain_as_published, each.retain_handling) == (2, True, 2)


def test_a_group_has_the_same_identifier_after_a_restart_and_none_when_it_is_empty() -> None:
    keys = [("g", b"a"), ("h", b"a"), ("g", b"b/#")]
    one, other = Interest(), Interest()
    for key in keys:
        one.note(_subscription(key[1], key[0]), True)
    assert [one.identifier(key) for key in keys] == [other.identifier(key) for key in reversed(keys)][::-1]
    identifier = one.identifier(keys[0])
    one.note(_subscription(b"a", "g"), False)
    assert one.group(identifier) is None
    assert one.identifier(keys[0]) == identifier


def test_groups_whose_identifiers_would_be_the_same_have_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.cluster.interest.MAX_IDENTIFIER", 3)
    interest = Interest()
    keys = [("g", b"%d" % n) for n in range(3)]
    assert sorted(interest.identifier(key) for key in keys) == [1, 2, 3]
    assert [interest.group(interest.identifier(key)) for key in keys] == keys


def test_what_begins_with_a_dollar_is_each_nodes_own() -> None:
    assert not is_shared_with_others(b"$SYS/#")
    assert is_shared_with_others(b"#")
    assert filter_text(("g", b"a/b")) == "$share/g/a/b"


@pytest.mark.parametrize(
    ("client_id", "password", "version", "code"),
    [
        ("$link/edge/e0", b"right", 5, ReasonCode.SUCCESS),
        ("$link/head/h", b"right", 5, ReasonCode.SUCCESS),
        ("$link/edge/e0", b"wrong", 5, ReasonCode.NOT_AUTHORIZED),
        ("$link/edge/e0", None, 5, ReasonCode.NOT_AUTHORIZED),
        ("$link/edge/e0", b"right", 4, ReasonCode.NOT_AUTHORIZED),
        ("$link/tail/e0", b"right", 5, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        ("client", b"right", 5, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ],
)
def test_only_nodes_with_the_secret_are_let_in(
    client_id: str, password: bytes | None, version: int, code: ReasonCode
) -> None:
    request = ConnectRequest(
        client_id=client_id, username="u", password=password, version=version, peer="", listener="link"
    )
    assert wire.LinkAuthenticator("right").authenticate(request).reason_code == code


def test_messages_between_nodes_survive_the_wire_and_nonsense_is_empty() -> None:
    message = wire.encode("state", {"a": [1, "ü"]})
    assert wire.decode(message) == ("state", {"a": [1, "ü"]})
    for payload in (b"", b"[]", b"{", b"\xff"):
        message.payload = payload
        assert wire.decode(message) == ("state", {})
    assert wire.parse_client_id(wire.client_id(Role.EDGE, "a/b")) == (Role.EDGE, "a/b")


def test_a_view_survives_the_wire() -> None:
    bundle = Bundle(
        topic="t", subscribers=3, size_bytes=100.0, budget=0.5, arriving=30.0, leaving=20.0, depth=7.0
    )
    view = Edge(name="e0", uplink=8e6, downlink=9e6, bundles={"t": bundle})
    assert edge_of("e0", plain(view)) == view


def test_the_shortest_time_that_was_asked_for_counts_also_of_a_group() -> None:
    core = cast(Any, SimpleNamespace(publish_observers=()))
    agent = EdgeAgent(core, "e0", uplink=1.0, downlink=1.0, budget=9.0, budgets={"a/#": 5.0, "a/b": 1.0})
    assert (agent.required("a/b"), agent.required("c")) == (5.0, 9.0)
    agent.ask("a/#", 4.0)
    agent.ask("$share/g/a/b", 2.0)
    assert (agent.required("a/b"), agent.required("a/c")) == (2.0, 4.0)


def test_sizes_of_topics_are_forgotten_when_there_are_too_many() -> None:
    core = cast(Any, bare_core(publish_observers=()))
    route = SimpleNamespace(targets=[SimpleNamespace(session=Session(core, "c"))])
    core.index = SimpleNamespace(route=lambda _: route)
    agent = EdgeAgent(core, "e0", uplink=1.0, downlink=1.0, budget=9.0, budgets={})
    for n in range(3):
        for topic in range(MAX_TOPICS):
            agent.on_message(cast(Any, None), Message(b"%d/%d" % (n, topic), b"x"))
        agent.view(1.0)
    assert len(agent._sizes) == MAX_TOPICS
    assert "2/0" in agent._sizes


def test_sequence_numbers_lead_to_the_identifiers_they_stand_for() -> None:
    seq = 0
    for pid in (1, 2, 65_535, 1, 5, 5, 3, 65_535):
        after = _next_seq(seq, pid)
        assert after > seq
        assert packet_identifier(after) == pid
        seq = after


def test_rows_are_cut_into_parts_that_fit_and_an_empty_session_is_one_part() -> None:
    assert list(parts(iter([]))) == [[]]
    rows = [[0, "x" * 100_000] for _ in range(7)]
    found = list(parts(iter(rows)))
    assert [len(part) for part in found] == [2, 2, 2, 1]


@pytest.mark.parametrize("text", ["a", "=1", "a=0", "a=x", "a=-1"])
def test_a_budget_that_is_none_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, (), {}, {"cluster.budgets": [text]})
    assert caught.value.key == "cluster.budgets"
    assert caught.value.hint


def test_budgets_may_have_an_equals_sign_in_the_filter() -> None:
    assert list(parse_budgets(["a=b/#=0.5", "c=2"])) == [("a=b/#", 0.5), ("c", 2.0)]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"cluster.role": "head"}, "cluster.secret"),
        ({"cluster.role": "edge", "cluster.secret": "x"}, "cluster.heads"),
    ],
)
def test_a_role_says_what_it_lacks(options: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, (), {}, options)
    assert caught.value.key == key
