"""The programs of the guide run as they are printed."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import blocks, page
from tidegate.broker import Broker
from tidegate.client import Client


def program(name: str, word: str) -> str:
    (found,) = [text for text in blocks(page(name), "python") if word in text]
    return found


def output_of(text: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-c", text, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_the_embedded_broker_prints_what_was_published_inside() -> None:
    assert output_of(program("embedding.md", "from inside")) == "tide/level 3.2\n"


def test_the_authoriser_keeps_everybody_at_his_own_topics() -> None:
    assert output_of(program("embedding.md", "OwnTopicsOnly")).splitlines() == [
        "pump/level: published",
        "valve/level: 0x87",
    ]


def test_the_fixture_works_in_a_project_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "test_sensor.py"
    file.write_text(program("embedding.md", "tidegate_broker"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(file)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in result.stdout


def test_retained_messages_are_copied() -> None:
    text = program("migrating.md", "retained messages copied")

    async def main() -> list[tuple[str, bytes, bool]]:
        async with Broker(port=0) as old, Broker(port=0) as new:
            for number in range(3):
                old.publish(f"tide/{number}", str(number).encode(), retain=True)
            urls = [f"mqtt://127.0.0.1:{broker.port}" for broker in (old, new)]
            assert await asyncio.to_thread(output_of, text, *urls) == "3 retained messages copied\n"
            async with Client(urls[1]) as client:
                await client.subscribe("tide/#")
                found = [await asyncio.wait_for(anext(client.messages), 20) for _ in range(3)]
                return sorted((each.topic, each.payload, each.retain) for each in found)

    assert asyncio.run(main()) == [(f"tide/{number}", str(number).encode(), True) for number in range(3)]
