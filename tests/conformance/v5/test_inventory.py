"""The table of statements in docs/conformance-5.0.md and the tests beside this file must agree."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
TABLE = FOLDER.parents[2] / "docs" / "conformance-5.0.md"

ROW = re.compile(r"^\| MQTT-(?P<number>[\d.]+-\d+) \| (?P<text>.+) \| (?P<binds>.+) \| (?P<test>.+) \|$")
NAME = re.compile(r"`(test_MQTT_(\d+)_(\d+)_(\d+)_(\d+)_\w+)`")

STATEMENTS = 251
"""Of Appendix B, with the four on WebSocket."""


def names_of_tests() -> set[str]:
    return {
        name
        for path in FOLDER.glob("test_*.py")
        for name in re.findall(r"^def (test_MQTT_\w+)\(", path.read_text(), re.MULTILINE)
    }


def rows() -> list[re.Match[str]]:
    return [row for line in TABLE.read_text().splitlines() if (row := ROW.match(line))]


def test_the_table_names_every_test_and_no_other() -> None:
    named = {found[1] for row in rows() for found in NAME.finditer(row["test"])}
    assert named == names_of_tests()


def test_each_test_stands_beside_its_statement() -> None:
    for row in rows():
        for found in NAME.finditer(row["test"]):
            assert "{}.{}.{}-{}".format(*found.groups()[1:]) == row["number"]


def test_every_statement_is_listed_once_and_every_one_that_binds_a_server_has_a_test() -> None:
    numbers = [row["number"] for row in rows()]
    assert len(numbers) == len(set(numbers)) == STATEMENTS
    untested = [row["number"] for row in rows() if "server" in row["binds"] and not NAME.search(row["test"])]
    assert untested == []
