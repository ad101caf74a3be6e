"""What a real broker records of real clients: every message once, whatever way it took through the broker."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.integration.broker.gate_traffic import always, known, publish
from tests.integration.broker.test_gate_views import AnyPassword
from tests.integration.lake.conftest import Recorded, clients
from tidegate import schema
from tidegate.broker.flow_settings import Backoff, BandName, FlowSettings, PriorityClass
from tidegate.broker.hooks import Hooks
from tidegate.broker.recording import Level
from tidegate.flow.backoff import Mode
from tidegate.mqtt import Publish
from tidegate.pipeline.replay.gate import GateReplay
from tidegate.pipeline.replay.members import MemberReplay
from tidegate.testing.raw import RawClient

Record = Callable[..., Recorded]
Sent = Counter[tuple[str, str, int, int]]  # client, topic, QoS, bytes


def mixed_traffic(client: RawClient, name: str, seed: int, version: int) -> Sent:
    """Runs of one size, mixed sizes, all QoS, large packets; waits until all is acknowledged."""
    random = Random(seed)
    sent: Sent = Counter()
    number = 0
    for _ in range(30):
        topic = random.choice(["a", "b/c"])
        qos = random.choice([0, 0, 1, 2])
        packets = []
        size = random.choice([0, 10, 200])
        for _ in range(random.choice([1, 3, 40])):
            number += 1
            if random.random() < 0.1:
                size = random.choice([0, 10, 200, 20_000])
            packets.append(publish(number, qos, topic, size, version))
            sent[name, topic, qos, len(packets[-1])] += 1
        client.send_bytes(b"".join(packets))
        if qos == 2:
            release(client, len(packets), number)
    client.barrier()
    return sent


def release(client: RawClient, count: int, last: int) -> None:
    client.barrier()
    for number in range(last - count + 1, last + 1):
        client.send_bytes(b"\x62\x02" + (number % 65_535 + 1).to_bytes(2, "big"))


@pytest.mark.parametrize("version", [4, 5])
def test_at_level_full_there_is_one_row_for_each_message(record: Record, version: int) -> None:
    recorded = record(Level.FULL)
    with clients(recorded.broker, "sub", "p1", "p2", version=version) as (sub, one, two):
        sub.subscribe("#", qos=0)
        sent = mixed_traffic(one, "p1", 1, version) + mixed_traffic(two, "p2", 2, version)
    recorded.end()
    rows = recorded.rows("publish")
    assert Counter((r["client_id"], r["topic"], r["qos"], r["bytes"]) for r in rows) == sent
    assert {(r["count"], r["window_us"], r["node"]) for r in rows} == {(1, 0, "node-1")}
    for name in ("p1", "p2"):
        mine = [r for r in rows if r["client_id"] == name]
        assert [r["ts"] for r in mine] == sorted(r["ts"] for r in mine)
        span = (mine[-1]["ts"] - mine[0]["ts"]).total_seconds() * 1e6
        # Gaps are rounded down, and what came together shares one.
        assert span - 2 * len(mine) <= sum(r["gap_us"] or 0 for r in mine) <= span + 2
    deliveries = recorded.rows("deliver")
    by_topic = Counter[str]()
    for row in deliveries:
        assert row["client_id"] == "sub"
        if row["topic"] is not None:  # else it tells of what was dropped for a reader that does not read
            by_topic[row["topic"]] += row["count"]
    assert by_topic == {topic: sum(n for key, n in sent.items() if key[1] == topic) for topic in ("a", "b/c")}


def test_a_summary_adds_up_to_the_same(record: Record) -> None:
    recorded = record(Level.SUMMARY, window=0.2)
    with clients(recorded.broker, "sub", "p1", "p2") as (sub, one, two):
        sub.subscribe("#", qos=0)
        sent = mixed_traffic(one, "p1", 3, 5) + mixed_traffic(two, "p2", 4, 5)
    recorded.end()
    rows = recorded.rows("publish")
    counts, sizes = Counter[Any](), Counter[Any]()
    for row in rows:
        key = (row["client_id"], row["topic"], row["qos"])
        counts[key] += row["count"]
        sizes[key] += row["bytes"]
        assert row["gap_us"] is None
        assert row["first"] <= row["last"]
        assert sum(row["gap_counts"]) <= row["count"]
        assert row["gap_bins"] == sorted(set(row["gap_bins"]))
    assert counts == _grouped(sent, 1)
    assert sizes == _grouped(sent, None)
    assert sum(sum(row["gap_counts"]) for row in rows) > 0
    total = sum(row["publish_received"] for row in recorded.rows("load"))
    assert total == sum(sent.values())


def _grouped(sent: Sent, weight: int | None) -> Counter[Any]:
    found = Counter[Any]()
    for (client, topic, qos, size), count in sent.items():
        found[client, topic, qos] += count * (size if weight is None else weight)
    return found


FLOWS = [
    FlowSettings(backoff=Backoff(policy="paper", paper_d_max=0.002)),
    FlowSettings(backoff=Backoff(policy="paper", paper_d_max=0.002, mode=Mode.DROP)),
    FlowSettings(),
    always(d_max=0.05),
    always(d_max=0.05, mode=Mode.DROP),
    FlowSettings(backoff=Backoff(policy="off")),
]


@pytest.mark.parametrize("flow", FLOWS, ids=["paper", "paper-drop", "default", "adaptive", "drop", "off"])
def test_every_verdict_and_rank_can_be_computed_again(record: Record, flow: FlowSettings) -> None:
    recorded = record(Level.FULL, flow=flow)
    known(recorded.broker, p1=50.0)
    random = Random(5)
    bursts = [1, 1, 2, 3] if flow.backoff.policy == "paper" else [1, 1, 5, 30]
    for _ in range(2):  # the second time they are known
        with clients(recorded.broker, "p0", "p1", "p2") as publishers:
            for number in range(40):
                client = random.choice(publishers)
                client.send_bytes(b"".join(publish(n) for n in range(random.choice(bursts))))
                if number % 7 == 0:
                    client.barrier()
            for client in publishers:
                client.barrier()
            recorded.broker.call(lambda: _ask_ranks(recorded))
    recorded.end()
    rows, replay = _replayed(recorded)
    found = replay.findings
    assert found.differences == []
    assert found.notes == []
    kinds = Counter(row["kind"] for row in rows)
    # Three clients twice; a client comes to the gate with its first message.
    assert kinds["open"] == kinds["close"] == 6
    assert kinds["rank"] >= 6
    assert found.compared >= kinds["observe"] * 2 > 0
    if flow.backoff.always and flow.backoff.mode is Mode.DROP:
        assert any(row["d_f"] == -1.0 for row in rows)


def test_who_is_not_judged_leaves_nothing_to_compute_again(record: Record) -> None:
    service = PriorityClass(name="s", band=BandName.BULK, user="space", service=True)
    recorded = record(Level.FULL, flow=FlowSettings(classes=(service,)), hooks=Hooks(authenticator=AnyPassword()))
    for _ in range(2):
        with RawClient(recorded.broker.port, 5) as space, RawClient(recorded.broker.port, 5) as sensor:
            space.connect("space-1", username="space", password=b"x")
            sensor.connect("p0", username="p", password=b"x")
            for _ in range(5):
                for client in (space, sensor):
                    client.send_bytes(publish(1))
                    client.barrier()
                recorded.broker.call(lambda: _ask_ranks(recorded))
    recorded.end()
    rows, replay = _replayed(recorded)
    assert (replay.findings.differences, replay.findings.notes) == ([], [])
    assert {row["client_id"] for row in rows if row["kind"] in ("open", "rate", "rank")} == {"p0"}


def _replayed(recorded: Recorded) -> tuple[list[dict[str, Any]], GateReplay]:
    rows = sorted((r for r in recorded.rows("check") if r["seq"] is not None), key=lambda r: int(r["seq"]))
    replay = GateReplay()
    for row in rows:
        replay.feed(row)
    return rows, replay


def _ask_ranks(recorded: Recorded) -> None:
    gate = recorded.broker.broker.core.gate
    assert gate is not None
    for conn in recorded.broker.broker.core.connections:
        gate.rank(conn)
        gate.key(conn, recorded.broker.broker.core.now())


def test_holds_are_recorded_with_their_reasons(record: Record) -> None:
    recorded = record(Level.SUMMARY, flow=always(d_max=0.1))
    known(recorded.broker, fast=10.0)
    with clients(recorded.broker, "fast") as (fast,):
        fast.send_bytes(b"".join(publish(n) for n in range(100)))
        fast.barrier()
        fast.send_bytes(b"".join(publish(n) for n in range(100)))
        fast.barrier()
    recorded.end()
    held = [row for row in recorded.rows("check") if row["kind"] == "hold"]
    assert held
    assert {(r["client_id"], r["policy"], r["mode"]) for r in held} == {("fast", "adaptive", "backpressure")}
    assert all(0.0 < r["d_f"] <= 0.1 and 5.0 < r["fr_avg"] < 20.0 and r["seq"] is None for r in held)


@pytest.mark.parametrize("policy", ["round_robin", "least_inflight", "thesis", "earliest_finish"])
def test_every_choice_of_a_shared_group_can_be_computed_again(record: Record, policy: str) -> None:
    from tidegate.broker.settings import Features

    recorded = record(Level.FULL, features=Features(shared_policy=policy))
    random = Random(6)
    back: list[RawClient] = []
    with clients(recorded.broker, "m0", "m1", "m2", "pub") as (*members, publisher):
        for member in members:
            member.subscribe("$share/g/t", qos=1)
        for number in range(90):
            qos = random.choice([0, 1])
            publisher.send_bytes(publish(number, qos))
            publisher.barrier()
            if number % 10 == 3:
                load = b'{"msgsInQueue":%d,"processingTimePerMsg":%d}' % (
                    random.randrange(4),
                    random.randrange(1, 9),
                )
                members[random.randrange(3)].publish("$tide/load", load, qos=0)
            if number == 50:
                members[0].unsubscribe("$share/g/t")
            if number == 70:
                # Its session ends with its connection, and what it has goes on to others.
                members[1].close()
                members[1] = RawClient(recorded.broker.port)
                back.append(members[1])
                members[1].connect("m1")
                members[1].subscribe("$share/g/t", qos=1)
            for member in members:
                for packet in member.barrier():
                    if isinstance(packet, Publish) and packet.qos and random.random() < 0.8:
                        member.acknowledge(packet)
    for member in back:
        member.close()
    recorded.end()
    rows = sorted((r for r in recorded.rows("member") if r["seq"] is not None), key=lambda r: int(r["seq"]))
    replay = MemberReplay()
    for row in rows:
        replay.feed(row)
    assert replay.findings.differences == []
    assert Counter(row["kind"] for row in rows)["choose"] >= 90
    assert replay.findings.compared >= 90


def test_loads_queues_and_actions_are_sampled(record: Record) -> None:
    recorded = record(Level.SUMMARY, window=0.2)
    with clients(recorded.broker, "slow", "m", "pub") as (slow, member, publisher):
        slow.subscribe("t", qos=1)
        member.subscribe("$share/g/s", qos=0)
        for number in range(5):
            publisher.send_bytes(publish(number, 1) + publish(number, 0, "s"))
        publisher.barrier()
        recorded.broker.call(lambda: recorded.broker.broker.core.tap._samples.take())  # type: ignore[union-attr]
        publisher.barrier()
    recorded.end()
    [start, *_, stop] = sorted(recorded.rows("action"), key=lambda row: row["ts"])
    assert (start["kind"], stop["kind"], start["is_done"]) == ("start", "stop", True)
    [*queues] = [row for row in recorded.rows("queue") if row["client_id"] == "slow"]
    assert queues
    assert max(row["inflight"] for row in queues) == 5
    states = [row for row in recorded.rows("member") if row["kind"] == "state"]
    assert {(row["group"], row["client_id"]) for row in states} == {("g", "m")}
    load = recorded.rows("load")
    assert sum(row["publish_received"] for row in load) == 10
    assert all(row["cpu_us"] >= 0 and row["state"] in ("LOW", "HIGH", "OVERLOAD") for row in load)


def test_other_parts_of_a_node_record_by_name(record: Record) -> None:
    recorded = record(Level.SUMMARY)
    recorder = recorded.recorder
    assert recorder.record(
        "rpc", [{"backbone": "mqtt", "request_id": "r", "mac": "m", "outcome": "ack", "attempt": 1}]
    )
    assert recorder.record("beacon", [{"mac": "m", "gw": f"g{n}", "rssi": -40.0 - n} for n in range(3)])
    with pytest.raises(KeyError, match="beacon has no column colour"):
        recorder.record("beacon", [{"colour": "red"}])
    with pytest.raises(KeyError):
        recorder.record("nothing", [])
    recorded.end()
    [call] = recorded.rows("rpc")
    assert (call["request_id"], call["outcome"], call["t_gw"], call["node"]) == ("r", "ack", None, "node-1")
    assert [row["rssi"] for row in recorded.rows("beacon")] == [-40.0, -41.0, -42.0]
    assert set(schema.BEACON.names) - set(recorded.rows("beacon")[0]) <= {"lost"}
