"""What an operator says on the command line, and what stays where it is then."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster.nodes import Cluster, cluster, member, wait_until
from tests.integration.cluster.test_handover import PERSISTENT, _known, _session
from tests.integration.cluster.test_placement import _operate, _said
from tidegate.broker.hooks import ConnectRequest, Verdict
from tidegate.client import Client
from tidegate.cluster.agent import BUDGET_PROPERTY
from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.packets import Will
from tidegate.mqtt.properties import Property


class OneUser:
    """Lets in ann, who knows her password."""

    def authenticate(self, request: ConnectRequest) -> Verdict:
        if (request.username, request.password) == ("ann", b"right"):
            return Verdict(user="ann")
        return Verdict(reason_code=ReasonCode.NOT_AUTHORIZED)


async def _tidegate(nodes: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    command = [sys.executable, "-m", "tidegate", "cluster", *arguments]
    command += ["--head", f"127.0.0.1:{nodes.head.broker.port}"]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


async def test_operators_can_log_in(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("right\n")
    login = ("--username", "ann", "--password-file", str(password))
    async with cluster(2) as nodes:
        nodes.head.broker.core.hooks.authenticator = OneUser()
        refused = await _tidegate(nodes, "balance", "off")
        assert refused.returncode
        found = await _tidegate(nodes, "balance", "off", *login)
        assert (found.returncode, found.stdout) == (0, "balancing is off, policy deadline\n")
        found = await _tidegate(nodes, "plan", "e0", *login)
        assert (found.returncode, found.stdout) == (0, "nobody would move\n")
        found = await _tidegate(nodes, "drain", "e0", *login)
        assert (found.returncode, found.stdout) == (0, "done: 0 moved, 0 failed, 0 stay\n")


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
