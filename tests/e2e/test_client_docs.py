"""The programs of docs/client.md run as they are printed, but for addresses and file names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.broker.listener import Listener
from tidegate.net.tls import server_context
from tidegate.net.websocket import WebSocketOptions
from tidegate.testing import BrokerThread
from tidegate.testing.certificates import make_authority

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
PROGRAMS = [
    text for text in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "asyncio.run" in text
]


def program(word: str) -> str:
    (found,) = [text for text in PROGRAMS if word in text]
    return found


def output_of(text: str, **replaced: object) -> str:
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, str(new))
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_first_program_prints_what_it_published(tidegate_broker: BrokerThread) -> None:
    changes = {"mqtt://localhost": f"mqtt://127.0.0.1:{tidegate_broker.port}"}
    assert output_of(program("mqtt://"), **changes) == "sensors/1 21.5\n"


@pytest.mark.parametrize("is_required", [True, False])
def test_the_program_for_tls_publishes_with_a_certificate_of_its_own(
    tmp_path: Path, is_required: bool
) -> None:
    authority = make_authority(tmp_path)
    pump = authority.issue("pump-7")
    context = server_context(
        *authority.issue("server"),
        client_ca=authority.certificate,
        require_client_certificate=is_required,
    )
    changes = {
        '"ca.pem"': f'"{authority.certificate}"',
        '"pump-7.crt"': f'"{pump.certificate}"',
        '"pump-7.key"': f'"{pump.key}"',
    }
    with BrokerThread(listeners=[Listener(host="127.0.0.1", port=0, tls=context)]) as broker:
        changes["broker.example:8883"] = f"127.0.0.1:{broker.port}"
        assert output_of(program("mqtts://"), **changes) == "published over TLS\n"


def test_the_program_for_websocket_prints_what_it_published() -> None:
    listener = Listener(host="127.0.0.1", port=0, websocket=WebSocketOptions())
    with BrokerThread(listeners=[listener]) as broker:
        changes = {"broker.example:8083": f"127.0.0.1:{broker.port}"}
        assert output_of(program("ws://"), **changes) == "sensors/1 21.5\n"
