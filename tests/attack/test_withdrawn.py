"""Rights that were taken away, and accounts that are gone: nothing that was left behind has them still."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attack.conftest import (
    ACCOUNTS,
    RIGHTS,
    Dial,
    StartNode,
    Until,
    login,
    write_accounts,
    write_rights,
)
from tidegate.mqtt import Publish, Will
from tidegate.mqtt.properties import Property
from tidegate.settings import load_settings
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

LASTING = {Property.SESSION_EXPIRY_INTERVAL: 1_000}
SECRET = RIGHTS + """
user guest
topic readwrite secret/#
"""
"""Guest may, for now, more than `RIGHTS` says."""


def _start(folder: Path, rights: str = SECRET, names: tuple[str, ...] = ACCOUNTS) -> NodeThread:
    """A node that keeps what it has in the folder, with these accounts and rights."""
    given = {
        "listeners.0.port": 0,
        "data": str(folder / "data"),
        "accounts.password_file": str(write_accounts(folder, names)),
        "accounts.rights_file": str(write_rights(folder, rights)),
    }
    return NodeThread(load_settings(None, (), {}, given))


def _withdraw(node: NodeThread, folder: Path) -> None:
    write_rights(folder, RIGHTS)
    node.reload()


def _delete(node: NodeThread, folder: Path, name: str) -> None:
    write_accounts(folder, tuple(each for each in ACCOUNTS if each != name))
    node.reload()


def _reader(node: NodeThread, dial: Dial, topic_filter: str) -> RawClient:
    client = dial(node)
    login(client, "owner", "reader")
    client.subscribe(topic_filter, qos=1)
    return client


def _leave_queue(node: NodeThread, dial: Dial, *topics: str) -> None:
    """Guest is away, and these messages wait."""
    guest, owner = dial(node), dial(node)
    login(guest, "guest", properties=LASTING)
    guest.subscribe("secret/#", qos=1)
    guest.subscribe("public/#", qos=1)
    guest.disconnect()
    login(owner, "owner")
    for number, topic in enumerate(topics):
        owner.publish(topic, b"%d" % number, qos=1)
    owner.disconnect()


def _topics(node: NodeThread, dial: Dial) -> list[str]:
    """What guest finds."""
    guest = dial(node)
    assert login(guest, "guest", clean_start=False, properties=LASTING).session_present
    found = []
    for packet in guest.barrier():
        assert isinstance(packet, Publish)
        found.append(packet.topic)
        guest.acknowledge(packet)
    return found


# -- queues -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_durable", [False, True])
def test_what_waits_is_not_sent_to_who_lost_the_right(
    is_durable: bool, start_node: StartNode, dial: Dial, tmp_path: Path
) -> None:
    node = start_node(SECRET, **({"data": str(tmp_path / "data")} if is_durable else {}))
    _leave_queue(node, dial, "secret/a", "public/b", "secret/c")
    _withdraw(node, tmp_path)
    assert _topics(node, dial) == ["public/b"]
    assert node.call(lambda: node.node.broker.statistics()["dropped"]) == 2


def test_what_waits_is_sent_to_who_kept_the_right(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    node = start_node(SECRET)
    _leave_queue(node, dial, "secret/a", "public/b", "secret/c")
    node.reload()
    assert _topics(node, dial) == ["secret/a", "public/b", "secret/c"]


def test_what_waits_on_disk_is_not_sent_after_a_restart(dial: Dial, tmp_path: Path) -> None:
    with _start(tmp_path) as node:
        _leave_queue(node, dial, *(f"{('secret', 'public')[number % 2]}/{number}" for number in range(2_500)))
    with _start(tmp_path, RIGHTS) as node:
        guest = dial(node)
        login(guest, "guest", clean_start=False, properties=LASTING)
        found = [guest.take(Publish) for _ in range(20)]
        assert {each.topic.partition("/")[0] for each in found} == {"public"}


@pytest.mark.parametrize("since", [0, 3])
def test_what_was_sent_and_not_acknowledged_is_not_sent_again(
    since: int, start_node: StartNode, dial: Dial, tmp_path: Path
) -> None:
    """What flows since then says nothing of what is still unacknowledged."""
    node = start_node(SECRET)
    guest, owner = dial(node), dial(node)
    login(guest, "guest", properties=LASTING)
    guest.subscribe("secret/#", qos=1)
    guest.subscribe("public/#", qos=1)
    login(owner, "owner")
    owner.publish("secret/a", b"1", qos=1)
    guest.take(Publish)
    _withdraw(node, tmp_path)
    for _ in range(since):
        owner.publish("public/b", b"2", qos=1)
        guest.acknowledge(guest.take(Publish))
    guest.close()
    assert _topics(node, dial) == []


def test_qos_0_for_a_slow_reader_goes_with_the_right(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    node = start_node(SECRET)
    guest, owner = dial(node), dial(node)
    login(guest, "guest")
    guest.subscribe("secret/#")
    login(owner, "owner")
    for number in range(400):
        owner.publish("secret/a", b"%04d" % number + bytes(60_000))
    owner.barrier()
    waiting = node.call(lambda: node.node.broker.core.sessions["guest"].backlog_bytes)
    assert waiting > 1_000_000  # the control: there is something that must go
    _withdraw(node, tmp_path)
    found = [packet for packet in guest.barrier() if isinstance(packet, Publish)]
    assert len(found) * 60_000 <= 400 * 60_000 - waiting + 200_000


# -- wills --------------------------------------------------------------------------------------------------


def _leave_will(node: NodeThread, dial: Dial, name: str = "guest") -> None:
    client = dial(node)
    will = Will(topic="public/will" if name == "mallory" else "secret/will", payload=name.encode(), properties={
        Property.WILL_DELAY_INTERVAL: 1,
    })  # fmt: skip
    assert not login(client, name, will=will, properties=LASTING).reason_code
    client.close()


def test_a_delayed_will_is_not_published_for_who_lost_the_right(
    start_node: StartNode, dial: Dial, tmp_path: Path
) -> None:
    node = start_node(SECRET)
    reader = _reader(node, dial, "#")
    _leave_will(node, dial)
    _leave_will(node, dial, "mallory")
    _withdraw(node, tmp_path)
    assert reader.take(Publish).payload == b"mallory"  # the control, which was due later
    assert not [each for each in reader.barrier() if isinstance(each, Publish)]


def test_a_delayed_will_is_not_published_after_a_restart(dial: Dial, tmp_path: Path) -> None:
    with _start(tmp_path) as node:
        _leave_will(node, dial)
        _leave_will(node, dial, "mallory")
    with _start(tmp_path, RIGHTS) as node:
        reader = _reader(node, dial, "#")
        assert reader.take(Publish).payload == b"mallory"
        assert not [each for each in reader.barrier() if isinstance(each, Publish)]


def test_the_will_of_a_deleted_account_is_not_published(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    """Neither of who is away, nor of who is disconnected for it; all may still write there."""
    node = start_node("pattern readwrite #")
    reader = _reader(node, dial, "#")
    _leave_will(node, dial)
    connected = dial(node)
    login(connected, "guest", "another", will=Will(topic="public/now", payload=b"guest"))
    _leave_will(node, dial, "mallory")
    _delete(node, tmp_path, "guest")
    connected.expect_closed()
    assert reader.take(Publish).payload == b"mallory"
    assert not [each for each in reader.barrier() if isinstance(each, Publish)]


def test_the_will_of_an_account_deleted_while_the_node_was_down(dial: Dial, tmp_path: Path) -> None:
    with _start(tmp_path, "pattern readwrite #") as node:
        _leave_will(node, dial)
        _leave_will(node, dial, "mallory")
    with _start(tmp_path, "pattern readwrite #", ("owner", "mallory")) as node:
        reader = _reader(node, dial, "#")
        assert reader.take(Publish).payload == b"mallory"
        assert not [each for each in reader.barrier() if isinstance(each, Publish)]


# -- retained messages --------------------------------------------------------------------------------------


def _retain(node: NodeThread, dial: Dial, name: str, topic: str) -> None:
    client = dial(node)
    login(client, name, f"{name}-leaves")
    client.publish(topic, name.encode(), qos=1, retain=True)
    client.disconnect()


def _retained(node: NodeThread, dial: Dial) -> set[str]:
    client = dial(node)
    login(client, "owner", "looks")
    client.subscribe("#", qos=1)
    found = {each.topic for each in client.barrier() if isinstance(each, Publish)}
    client.disconnect()
    return found


def test_a_retained_message_is_not_sent_while_who_left_it_may_not_write_there(
    start_node: StartNode, dial: Dial, tmp_path: Path
) -> None:
    node = start_node(SECRET)
    _retain(node, dial, "guest", "secret/a")
    _retain(node, dial, "guest", "public/b")
    _retain(node, dial, "owner", "secret/c")
    assert _retained(node, dial) == {"secret/a", "public/b", "secret/c"}
    _withdraw(node, tmp_path)
    assert _retained(node, dial) == {"public/b", "secret/c"}
    write_rights(tmp_path, SECRET)
    node.reload()
    assert _retained(node, dial) == {"secret/a", "public/b", "secret/c"}


def test_a_retained_message_is_not_sent_after_a_restart_either(dial: Dial, tmp_path: Path) -> None:
    with _start(tmp_path) as node:
        _retain(node, dial, "guest", "secret/a")
        _retain(node, dial, "guest", "public/b")
    with _start(tmp_path, RIGHTS) as node:
        assert _retained(node, dial) == {"public/b"}


def test_retained_messages_go_with_the_account(
    start_node: StartNode, dial: Dial, tmp_path: Path, until: Until
) -> None:
    node = start_node(SECRET)
    _retain(node, dial, "guest", "public/a")
    _retain(node, dial, "owner", "public/b")
    _delete(node, tmp_path, "guest")
    assert _retained(node, dial) == {"public/b"}
    until(lambda: _count(node, "public/") == 1)


def test_retained_messages_of_an_account_deleted_while_the_node_was_down(
    dial: Dial, tmp_path: Path, until: Until
) -> None:
    with _start(tmp_path) as node:
        _retain(node, dial, "guest", "public/a")
        _retain(node, dial, "owner", "public/b")
    with _start(tmp_path, names=("owner", "mallory")) as node:
        assert _retained(node, dial) == {"public/b"}
        until(lambda: _count(node, "public/") == 1)
    with _start(tmp_path) as node:  # it is gone from the store: the account of today is not the one of then
        assert _retained(node, dial) == {"public/b"}


def _count(node: NodeThread, prefix: str) -> int:
    retained = node.node.broker.core.retained
    return node.call(lambda: len(list(retained.match(f"{prefix}#".encode()))))


# -- sessions -----------------------------------------------------------------------------------------------


def test_a_session_ends_with_its_account(start_node: StartNode, dial: Dial, tmp_path: Path, until: Until) -> None:
    node = start_node(SECRET)
    _leave_queue(node, dial, "public/a")
    staying = dial(node)
    login(staying, "mallory", properties=LASTING)
    staying.disconnect()
    _delete(node, tmp_path, "guest")
    until(lambda: "guest" not in _sessions(node))
    assert "mallory" in _sessions(node)
    again = dial(node)
    assert login(again, "mallory", "guest").reason_code == 0  # the name is free


def test_a_session_of_an_account_deleted_while_the_node_was_down(
    dial: Dial, tmp_path: Path, until: Until
) -> None:
    with _start(tmp_path) as node:
        _leave_queue(node, dial, "public/a")
    with _start(tmp_path, names=("owner", "mallory")) as node:
        until(lambda: "guest" not in _sessions(node))
        assert node.call(lambda: node.node.broker.core.index.count) == 0


def test_another_password_ends_no_session(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    node = start_node(SECRET)
    _leave_queue(node, dial, "public/a")
    path = tmp_path / "accounts"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.replace("owner:", "guest:") for line in lines if "guest:" not in line) + "\n")
    path.write_text(path.read_text() + next(line for line in lines if line.startswith("owner:")) + "\n")
    node.reload()
    guest = dial(node)
    answer = guest.connect(
        "guest", username="guest", password=b"owner", clean_start=False, properties=LASTING
    )
    assert answer.session_present
    assert guest.take(Publish).topic == "public/a"


def _sessions(node: NodeThread) -> Any:
    return node.call(lambda: set(node.node.broker.core.sessions))
