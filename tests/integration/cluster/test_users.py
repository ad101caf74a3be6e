"""A session is its user's, on whichever node another asks for it."""

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _session
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.client import Client, ConnectRefused
from tidegate.mqtt.codes import ReasonCode


class Names:
    """Lets in whoever says a name."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        return Verdict(user=request.username)


async def _begin(nodes: Cluster) -> Client:
    for node in (nodes.head, *nodes.edges):
        node.broker.core.hooks.authenticator = Names()
    client = await nodes.client(nodes.edges[0], "c", username="ann", **PERSISTENT)
    await client.subscribe("t", qos=1)
    await _known(nodes, "c", "e0")
    return client


async def test_another_user_does_not_get_a_session_by_its_name() -> None:
    async with cluster(2) as nodes:
        await _begin(nodes)
        server = f"127.0.0.1:{nodes.edges[1].broker.port}"
        with pytest.raises(ConnectRefused) as caught:
            await Client(server, client_id="c", username="bob", clean_start=False).connect()
        assert caught.value.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        assert _session(nodes.edges[0], "c").conn is not None
        assert not member(nodes.head).handover.moving
        again = await nodes.client(nodes.edges[1], "c", username="ann", **PERSISTENT)
        assert again.connack.session_present


@pytest.mark.parametrize("place", ["edge", "head"])
async def test_another_user_does_not_end_a_session_by_its_name(place: str) -> None:
    async with cluster(2) as nodes:
        await _begin(nodes)
        node = nodes.head if place == "head" else nodes.edges[1]
        other = await nodes.client(node, "c", username="bob", clean_start=True)
        await wait_until(lambda: not other.is_connected)
        await wait_until(lambda: _session(node, "c") is None)
        await _known(nodes, "c", "e0")
        assert _session(nodes.edges[0], "c").conn is not None
