"""One account cannot take what is for all, nor the names of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attack.conftest import RIGHTS, Dial, StartNode, login, write_accounts, write_rights
from tidegate.accounts.errors import AccountsError
from tidegate.accounts.names import ClientNames
from tidegate.accounts.rights_file import parse_rights
from tidegate.broker.settings import Features
from tidegate.mqtt import Publish, ReasonCode, Subscription, Will
from tidegate.mqtt.properties import Property
from tidegate.settings import load_settings
from tidegate.testing import NodeThread
from tidegate.testing.raw import RawClient

FOR_EVER = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}


# -- quotas -------------------------------------------------------------------------------------------------


def test_one_account_does_not_take_all_sessions(dial: Dial, tmp_path: Path) -> None:
    given = {
        "listeners.0.port": 0,
        "limits.connection_rate": 0.0,
        "limits.max_sessions": 8,
        "limits.max_account_sessions": 5,
        "data": str(tmp_path / "data"),
        "accounts.password_file": str(write_accounts(tmp_path)),
        "accounts.rights_file": str(write_rights(tmp_path, RIGHTS)),
    }
    with NodeThread(load_settings(None, (), {}, given)) as node:
        for number in range(5):
            client = dial(node)
            assert login(client, "mallory", f"m{number}", properties=FOR_EVER).reason_code == 0
            client.disconnect()
        answer = login(dial(node), "mallory", "m5", properties=FOR_EVER)
        assert answer.reason_code == ReasonCode.QUOTA_EXCEEDED
        assert "account" in str(answer.properties[Property.REASON_STRING])
        guest = dial(node)
        assert login(guest, "guest").reason_code == 0
        guest.disconnect()
    with NodeThread(load_settings(None, (), {}, given)) as node:
        assert login(dial(node), "mallory", "m5").reason_code == ReasonCode.QUOTA_EXCEEDED
        assert login(dial(node), "guest").reason_code == 0
        known = dial(node)
        assert login(known, "mallory", "m1", clean_start=False, properties=FOR_EVER).session_present
        known.disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 0})
        assert login(dial(node), "mallory", "m5").reason_code == 0  # one is over, and there is room


def test_one_account_does_not_take_all_retained_messages(start_node: StartNode, dial: Dial) -> None:
    node = start_node(RIGHTS, limits__max_retained=8, limits__max_account_retained=5)
    mallory, guest, reader = dial(node), dial(node), dial(node)
    login(mallory, "mallory")
    login(guest, "guest")
    login(reader, "owner")
    guest.publish("public/g", b"g", retain=True)
    for number in range(10):
        mallory.publish(f"public/m{number}", b"m", qos=1, retain=True)
    guest.publish("public/h", b"h", qos=1, retain=True)
    mallory.publish("public/g", b"m", qos=1, retain=True)  # over the topic of another, too
    mallory.publish("public/m0", b"", qos=1, retain=True)
    mallory.publish("public/m9", b"m", qos=1, retain=True)
    reader.subscribe("public/#", qos=1)
    found = {each.topic[7:]: each.payload for each in reader.barrier() if isinstance(each, Publish)}
    assert node.call(lambda: node.node.broker.statistics()["retained_refused"]) == 6
    assert found == dict.fromkeys(("m1", "m2", "m3", "m4", "m9"), b"m") | {"g": b"g", "h": b"h"}


def test_what_one_account_keeps_has_a_bound_and_room_is_room_again(start_node: StartNode, dial: Dial) -> None:
    node = start_node(RIGHTS, limits__max_account_bytes=65_536, limits__max_queued_bytes=1_000_000)
    mallory, guest = dial(node), dial(node)
    login(mallory, "mallory", properties=FOR_EVER)
    login(guest, "guest", properties=FOR_EVER)
    for number in range(10):
        mallory.publish(f"public/{number}", bytes(10_000), qos=1, retain=True)
    assert node.call(lambda: node.node.broker.statistics()["retained_refused"]) == 3  # the seventh went over it
    assert mallory.subscribe("public/a").reason_codes == [ReasonCode.QUOTA_EXCEEDED]
    assert login(dial(node), "mallory", "m2").reason_code == ReasonCode.QUOTA_EXCEEDED
    assert guest.subscribe("public/a").reason_codes == [0]
    guest.publish("public/g", bytes(10_000), qos=1, retain=True)
    mallory.publish("public/0", b"", qos=1, retain=True)
    mallory.publish("public/1", b"", qos=1, retain=True)
    assert mallory.subscribe("public/a").reason_codes == [0]
    assert login(dial(node), "mallory", "m2").reason_code == 0
    assert node.call(lambda: node.node.broker.core.retained.get(b"public/g")) is not None


def test_the_queues_of_one_account_have_a_bound_together(start_node: StartNode, dial: Dial) -> None:
    """One after the other is full, and publishers wait for it; those of others take what comes."""
    node = start_node(RIGHTS, limits__max_account_bytes=100_000, limits__hold_timeout=0.5)
    publisher = dial(node)
    for name, user in (("m1", "mallory"), ("m2", "mallory"), ("m3", "mallory"), ("g1", "guest")):
        client = dial(node)
        login(client, user, name, clean_start=False, properties=FOR_EVER)
        client.subscribe("public/q", qos=1)
        client.disconnect(properties=FOR_EVER)
    login(publisher, "owner")
    for _ in range(9):
        publisher.publish("public/q", bytes(10_000), qos=1)
    queued = {name: node.call(lambda name=name: node.node.broker.core.sessions[name].queued_messages) for name in
              ("m1", "m2", "m3", "g1")}
    assert queued["g1"] == 9
    assert 9 <= queued["m1"] + queued["m2"] + queued["m3"] <= 12


def test_a_session_keeps_no_more_than_its_share(start_node: StartNode, dial: Dial) -> None:
    node = start_node(limits__max_session_bytes=20_000)
    client = dial(node)
    client.connect("c", properties=FOR_EVER)
    codes = [client.subscribe(f"{number}/{'x' * 5_000}").reason_codes[0] for number in range(5)]
    assert codes == [0, 0, 0, ReasonCode.QUOTA_EXCEEDED, ReasonCode.QUOTA_EXCEEDED]
    assert client.subscribe(f"0/{'x' * 5_000}", qos=1).reason_codes == [1]  # it is there already
    client.unsubscribe(f"1/{'x' * 5_000}")
    assert client.subscribe(f"4/{'x' * 5_000}").reason_codes == [0]
    will = Will(topic="w", payload=bytes(30_000))
    assert dial(node).connect("d", will=will).reason_code == ReasonCode.QUOTA_EXCEEDED


def test_a_client_identifier_has_a_longest_length(start_node: StartNode, dial: Dial) -> None:
    node = start_node()
    assert dial(node).connect("é" * 512).reason_code == 0
    assert dial(node).connect("é" * 512 + "a").reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert dial(node, 4).connect("é" * 512 + "a").reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_what_one_account_left_is_there_after_a_restart_with_a_smaller_bound(dial: Dial, tmp_path: Path) -> None:
    given: dict[str, object] = {
        "listeners.0.port": 0,
        "data": str(tmp_path / "data"),
        "accounts.password_file": str(write_accounts(tmp_path)),
    }
    with NodeThread(load_settings(None, (), {}, given)) as node:
        client = dial(node)
        login(client, "guest")
        for number in range(5):
            client.publish(f"t/{number}", b"x", qos=1, retain=True)
        client.disconnect()
    given |= {"limits.max_retained": 2, "limits.max_account_retained": 1}
    with NodeThread(load_settings(None, (), {}, given)) as node:
        client = dial(node)
        login(client, "guest")
        client.subscribe("t/#", qos=1)
        assert len([each for each in client.barrier() if isinstance(each, Publish)]) == 5


def test_without_accounts_there_is_one_user_who_may_have_all(start_node: StartNode, dial: Dial) -> None:
    node = start_node(limits__max_account_sessions=1, limits__max_account_retained=1)
    for number in range(3):
        client = dial(node)
        assert client.connect(f"c{number}", properties=FOR_EVER).reason_code == 0
        client.publish(f"t/{number}", b"x", qos=1, retain=True)
    client.subscribe("t/#")
    assert len([each for each in client.barrier() if isinstance(each, Publish)]) == 3


# -- who costs what -----------------------------------------------------------------------------------------


def test_the_operator_sees_whose_clients_cost_most(start_node: StartNode, dial: Dial) -> None:
    node = start_node(RIGHTS)
    mallory, guest = dial(node), dial(node)
    login(mallory, "mallory", "m1")
    login(guest, "guest", "g1")
    with RawClient(node.operator_socket()) as operator:
        operator.connect("boss")
        operator.subscribe("$SYS/tide/accounts")
        operator.take(Publish, topic="$SYS/tide/accounts")  # work from here on
        guest.publish("public/x", b"x", qos=1, retain=True)
        for _ in range(3):
            mallory.subscribe_all([Subscription(topic_filter=f"public/{n}/+", qos=0) for n in range(3_000)])
        rows: dict[str, Any] = {}
        while not rows.get("mallory", {}).get("work"):
            rows = {row["user"]: row for row in json.loads(operator.take(Publish).payload)["rows"]}
    assert rows["mallory"]["busiest"] == "m1"
    assert rows["mallory"]["work"] > 10 * rows["guest"]["work"]
    assert rows["mallory"]["kept_bytes"] > 3_000 * 600 > rows["guest"]["kept_bytes"] > 1_500
    assert (rows["guest"]["retained"], rows["guest"]["sessions"], rows["guest"]["connected"]) == (1, 1, 1)
    page = node.call(lambda: node.node.broker.statistics())
    assert page["work"] >= 3 * 3_000 * 10 and page["accounts"][0]["user"] in rows


# -- how long a session lasts -------------------------------------------------------------------------------


def test_no_session_is_for_ever_unless_that_is_set(start_node: StartNode, dial: Dial) -> None:
    week = 7 * 24 * 3_600
    node = start_node()
    answer = dial(node).connect("five", properties=FOR_EVER)
    assert answer.properties[Property.SESSION_EXPIRY_INTERVAL] == week
    dial(node, 4).connect("four", clean_start=False)
    assert node.call(lambda: node.node.broker.core.sessions["four"].expiry) == week
    other = start_node(features__max_session_expiry=0xFFFF_FFFF)
    assert Property.SESSION_EXPIRY_INTERVAL not in dial(other).connect("five", properties=FOR_EVER).properties
    assert Features().max_session_expiry == Features().persistent_session_expiry == week


# -- names --------------------------------------------------------------------------------------------------

NAMES = """
user owner
topic readwrite #
client pump-*

group crew
member guest
topic readwrite public/#
client crew-*

user mallory
topic readwrite public/#
"""


def _may(text: str, user: str | None, client_id: str) -> bool:
    return ClientNames(parse_rights(text)).may_use(user, client_id)


@pytest.mark.parametrize(
    ("user", "client_id", "is_allowed"),
    [
        ("owner", "pump-1", True),
        ("owner", "pump-", True),
        ("owner", "pump-\n", True),
        ("owner", "laptop", False),
        ("owner", "crew-1", False),
        ("guest", "crew-1", True),
        ("guest", "pump-1", False),
        ("mallory", "pump-1", False),
        ("mallory", "crew-1", False),
        ("mallory", "a pump-1", True),
        ("mallory", "Pump-1", True),
        (None, "pump-1", False),
        (None, "laptop", True),
    ],
)
def test_a_name_that_is_bound_is_for_its_account_alone(user: str | None, client_id: str, is_allowed: bool) -> None:
    assert _may(NAMES, user, client_id) is is_allowed


@pytest.mark.parametrize(
    ("user", "client_id", "is_allowed"),
    [
        ("ada", "ada", True),
        ("ada", "ada/1", True),
        ("ada", "bob/1", False),
        ("a.a", "aXa", False),
        ("*", "ada", False),
        (".*", "ada", False),
        ("%u", "%u", True),
        (None, "ada", True),
    ],
)
def test_a_line_for_every_user_takes_the_name_as_it_is(user: str | None, client_id: str, is_allowed: bool) -> None:
    """Users may choose names that mean something in a pattern."""
    assert _may("client %u\nclient %u/*", user, client_id) is is_allowed


@pytest.mark.parametrize("line", ["client", "client a*b*", "client %c"])
def test_a_line_that_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(AccountsError, match="rights:1"):
        parse_rights(line, "rights")


def test_who_had_a_name_before_it_was_bound_gives_way(start_node: StartNode, dial: Dial, tmp_path: Path) -> None:
    node = start_node(RIGHTS)
    squatter, owner = dial(node), dial(node)
    assert login(squatter, "mallory", "pump-1", properties=FOR_EVER).reason_code == 0
    assert login(dial(node), "owner", "pump-1").reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    write_rights(tmp_path, NAMES)
    node.reload()
    answer = login(owner, "owner", "pump-1", clean_start=False)
    assert (answer.reason_code, answer.session_present) == (0, False)
    squatter.expect_closed()
    assert login(dial(node), "mallory", "pump-1").reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    nameless = dial(node)
    answer = nameless.connect("", username="mallory", password=b"mallory")
    assert answer.reason_code == 0  # the node's own names are for everybody
    owner.barrier()
