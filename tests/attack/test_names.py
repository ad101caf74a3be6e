"""A client identifier is a name and gives no rights."""

import pytest

from tests.attack.conftest import RIGHTS, Dial, StartNode, login
from tidegate.mqtt import ReasonCode
from tidegate.mqtt.packets import Publish
from tidegate.testing.raw import ConnectionEndedError

NODES_NAMES = ("$link/edge/e0", "$link/head/h", "$link/x", "$copy/owner", "$", "$SYS")


@pytest.mark.parametrize("version", [4, 5])
def test_no_client_may_call_itself_what_nodes_are_called(
    start_node: StartNode, dial: Dial, version: int
) -> None:
    node = start_node(RIGHTS)
    for name in NODES_NAMES:
        client = dial(node, version)
        answer = login(client, "guest", name)
        assert answer.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, name
        with pytest.raises(ConnectionEndedError):
            client.receive()


def test_a_name_opens_no_topic_neither_kept_nor_live(start_node: StartNode, dial: Dial) -> None:
    node = start_node(RIGHTS)
    owner = dial(node)
    login(owner, "owner")
    owner.publish("secret/kept", b"x", qos=1, retain=True)
    spies = []
    for name in ("$link/edge/e0", "link/edge/e0", "\u00a7link/edge/e0", "owner2", "$link/edge/e0\u200b"):
        spy = dial(node)
        if login(spy, "guest", name).reason_code == ReasonCode.SUCCESS:
            spy.subscribe("#", 1)
            spies.append(spy)
    assert len(spies) == 3
    owner.publish("secret/live", b"x", qos=1)
    owner.publish("public/end", b"x", qos=1)
    for spy in spies:
        assert spy.take(Publish).topic == "public/end"
