"""What an operator says on the command line, and what stays where it is then."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, unlink, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _session
from tests.integration.cluster.test_placement import _operate, _said
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.client import Client
from tidegate.cluster.agent import BUDGET_PROPERTY
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.packets import Will
from tidegate.mqtt.properties import Property
from tidegate.node import Node
from tidegate.settings import load_settings


class OneUser:
    """Lets in ann, who knows her password."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        if (request.username, request.password) == ("ann", b"right"):
            return Verdict(user="ann")
        return Verdict(reason_code=ReasonCode.NOT_AUTHORIZED)


class OneRight:
    """Ann may do everything, nobody else anything."""

    def may_publish(self, client: Any, topic: str) -> bool:
        return bool(client.username == "ann")

    def may_subscribe(self, client: Any, topic_filter: str) -> bool:
        return bool(client.username == "ann")

    def may_receive(self, session: Any, topic: str) -> bool:
        return bool(session.user == "ann")


async def _tidegate(nodes: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await _command(*arguments, "--head", f"127.0.0.1:{nodes.head.broker.port}")


async def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    command = [sys.executable, "-m", "tidegate", "cluster", *arguments]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


async def test_operators_can_log_in(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("right\n")
    login = ("--username", "ann", "--password-file", str(password))
    async with cluster(2) as nodes:
        nodes.head.broker.core.hooks.authenticator = OneUser()
        nodes.head.broker.core.authorise = OneRight()
        refused = await _tidegate(nodes, "balance", "off", "--username", "eve")
        assert refused.returncode
        found = await _tidegate(nodes, "balance", "off", *login)
        assert (found.returncode, found.stdout) == (0, "balancing is off, policy deadline\n")
        found = await _tidegate(nodes, "plan", "e0", *login)
        assert (found.returncode, found.stdout) == (0, "nobody would move\n")
        found = await _tidegate(nodes, "drain", "e0", *login)
        assert (found.returncode, found.stdout) == (0, "done: 0 moved, 0 failed, 0 stay\n")


async def test_who_names_no_edge_is_told_so_and_which_ones_there_are() -> None:
    async with cluster(2) as nodes:
        for name in ("nowhere", "h"):
            for what in (["plan", name], ["drain", name], ["drain", name, "--stop"]):
                found = await _tidegate(nodes, *what)
                said = f"error: no such edge: {name}; this head knows e0, e1\n"
                assert (found.returncode, found.stdout, found.stderr) == (1, "", said)


async def test_an_edge_that_is_away_is_not_drained() -> None:
    async with cluster(2) as nodes:
        await unlink(nodes, nodes.edges[1])
        for what in ("plan", "drain"):
            found = await _tidegate(nodes, what, "e1")
            assert (found.returncode, found.stdout, found.stderr) == (1, "", "error: e1 is not linked\n")
        assert not member(nodes.head).statistics()["draining"]


async def test_a_drain_that_has_nowhere_to_send_clients_gives_the_reason() -> None:
    async with cluster(1) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        await client.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        for what, said in (("plan", ""), ("drain", "failed: 0 moved, 0 failed, 0 stay\n")):
            found = await _tidegate(nodes, what, "e0")
            assert (found.returncode, found.stdout) == (1, said)
            assert found.stderr == "error: no other edge takes clients\n"
        found = await _tidegate(nodes, "drain", "e0", "--stop")
        assert (found.returncode, found.stderr) == (0, "")


async def test_who_asks_an_edge_is_sent_to_its_head() -> None:
    async with cluster(1) as nodes:
        edge = nodes.edges[0]
        await wait_until(lambda: bool(_said(edge, "nodes")))
        for what in (("plan", "e0"), ("drain", "e0"), ("drain", "e0", "--stop"), ("balance", "off")):
            found = await _command(*what, "--head", f"127.0.0.1:{edge.broker.port}")
            assert found.returncode == 1
            assert found.stderr == (
                "error: that is an edge: name its head with --head\n"
                f"hint: its head is 127.0.0.1:{nodes.head.broker.port}\n"
            )


async def test_who_asks_a_node_without_a_head_waits_for_seconds() -> None:
    async with Node(load_settings(None, (), {}, {"listeners.0.port": 0})) as node:
        began = asyncio.get_running_loop().time()
        found = await _command("drain", "e0", "--head", f"127.0.0.1:{node.broker.port}")
        assert (found.returncode, "no answer about e0" in found.stderr) == (1, True)
        assert asyncio.get_running_loop().time() - began < 15


async def test_who_names_the_link_port_is_told_so() -> None:
    async with cluster(1) as nodes:
        address = f"127.0.0.1:{nodes.head.link_port}"
        for what in (("plan", "e0", "--head", address), ("status", address)):
            found = await _command(*what)
            assert found.returncode == 1
            assert "hint: is that a head's link port?" in found.stderr


async def test_an_answer_takes_time() -> None:
    assert (await _command("plan", "e0", "--timeout", "-1")).returncode == 2


async def test_a_session_whose_will_is_due_stays() -> None:
    async with cluster(2) as nodes:
        edge = nodes.edges[0]
        will = Will(topic="w", payload=b"gone", properties={Property.WILL_DELAY_INTERVAL: 300})
        dying = Client(f"127.0.0.1:{edge.broker.port}", client_id="c", session_expiry_interval=600, will=will)
        await dying.connect()
        await dying.subscribe("t", qos=1)
        await _known(nodes, "c", "e0")
        await dying.disconnect(0x04)
        await wait_until(lambda: _session(edge, "c").conn is None)
        await _operate(nodes, "drain", "e0")
        await wait_until(lambda: _said(nodes.head, "drain/e0").get("state") == "done")
        assert _said(nodes.head, "drain/e0")["stay"] == 1
        assert _session(edge, "c").will is not None


async def test_a_budget_that_makes_no_sense_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate.cluster")
    async with cluster(1) as nodes:
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        for budget in ("0.5", "abc", "-1"):
            await client.subscribe("a", user_properties=[(BUDGET_PROPERTY, budget)])
        assert member(nodes.edges[0]).agent.asked == {"a": 0.5}  # type: ignore[union-attr]
        assert sum("makes no sense" in record.getMessage() for record in caplog.records) == 1


async def test_budgets_count_while_somebody_is_subscribed() -> None:
    async with cluster(1) as nodes:
        agent = member(nodes.edges[0]).agent
        assert agent is not None
        client = await nodes.client(nodes.edges[0], "c", **PERSISTENT)
        for topic_filter in ("a/#", "$share/g/b"):
            await client.subscribe(topic_filter, user_properties=[(BUDGET_PROPERTY, "0.5")])
        assert agent.asked == {"a/#": 0.5, "b": 0.5}
        await client.unsubscribe("a/#")
        await wait_until(lambda: agent.asked == {"b": 0.5})
        await client.unsubscribe("$share/g/b")
        await wait_until(lambda: not agent.asked)
