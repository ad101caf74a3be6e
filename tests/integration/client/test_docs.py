"""The programs of docs/client.md that need nothing but a broker run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.testing import BrokerThread

PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
PROGRAMS = {
    "callback": {"callback alarms/fire pier 3", "block yes", "iterator 21.5"},
    "outbox": {"left in the outbox: 0"},
    "$share": {str([f"job {number}" for number in range(10)])},
}


@pytest.mark.parametrize("word", PROGRAMS)
def test_a_program_of_the_page_prints_what_it_should(
    word: str, tidegate_broker: BrokerThread, tmp_path: Path
) -> None:
    (text,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
        if word in text and "localhost:1883" in text
    ]
    text = text.replace("localhost:1883", f"127.0.0.1:{tidegate_broker.port}")
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert set(result.stdout.splitlines()) == PROGRAMS[word]
