"""The table of statements in docs/conformance-3.1.1.md and the tests beside this file must agree."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
TABLE = FOLDER.parents[2] / "docs" / "conformance-3.1.1.md"

ROW = re.compile(r"^\| MQTT-(?P<number>[\d.]+-\d+) \| (?P<text>.+) \| (?P<binds>.+) \| (?P<test>.+) \|$")


def names_of_tests() -> set[str]:
    return {
        name
        for path in FOLDER.glob("test_*.py")
        for name in re.findall(r"^def (test_MQTT_\w+)\(", path.read_text(), re.MULTILINE)
    }


def rows() -> list[re.Match[str]]:
    return [row for line in TABLE.read_text().splitlines() if (row := ROW.match(line))]


def test_the_table_names_every_test_and_no_other() -> None:
    named = {name for row in rows() for name in re.findall(r"`(test_MQTT_\w+)`", row["test"])}
    assert named == names_of_tests()


def test_every_statement_that_binds_a_server_has_a_test_or_a_reason() -> None:
    numbers = [row["number"] for row in rows()]
    assert len(numbers) == len(set(numbers)) == 141
    for row in rows():
        if "server" in row["binds"] and "`test_MQTT_" not in row["test"]:
            assert row["test"].startswith("not testable: ")
