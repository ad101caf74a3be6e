"""Names, histograms and places of files: what every room relies on."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import schema

values = st.floats(min_value=0, max_value=2.0**62, allow_nan=False)
whole = st.integers(1, 2**62)


@pytest.mark.parametrize(
    "table", [*schema.TABLES.values(), *schema.POLICY_TABLES.values()], ids=lambda t: t.name
)
def test_a_table_names_each_column_once_and_its_key_among_them(table: schema.Table) -> None:
    assert len(set(table.names)) == len(table.names)
    assert set(table.key) <= set(table.names)
    assert all(1 <= column.since <= table.version for column in table.columns)


@pytest.mark.parametrize("table", schema.TABLES.values(), ids=lambda t: t.name)
def test_every_table_of_the_lake_begins_with_who_and_when(table: schema.Table) -> None:
    assert table.names[:4] == ("run", "node", "ts", "lost")


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(KeyError, match="publish has no column colour"):
        schema.PUBLISH.column("colour")


@given(whole)
def test_a_value_lies_in_its_bin(value: int) -> None:
    number = schema.bin_of(value)
    assert 1 <= number <= schema.BIN_MAX
    assert schema.bin_start(number) <= value * (1 + 1e-9)
    assert value < schema.bin_start(number + 1) * (1 + 1e-9)


@given(whole)
def test_the_value_of_a_bin_is_at_most_1_1_percent_off(value: int) -> None:
    assert abs(schema.bin_value(schema.bin_of(value)) / value - 1) < 0.011


@given(values, values)
def test_a_larger_value_is_never_in_a_lower_bin(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert schema.bin_of(low) <= schema.bin_of(high)


@pytest.mark.parametrize("power", range(63))
def test_a_power_of_two_begins_a_bin(power: int) -> None:
    assert schema.bin_of(2**power) == 1 + 32 * power


@pytest.mark.parametrize("value", [0, 0.5, -1, -1e12])
def test_what_is_below_a_microsecond_is_in_bin_0(value: float) -> None:
    assert schema.bin_of(value) == 0
    assert schema.bin_value(0) == schema.bin_start(0) == 0.0


@given(st.lists(whole, min_size=1, max_size=200), st.floats(0, 1))
def test_quantiles_are_those_of_the_values_within_the_width_of_a_bin(found: list[int], q: float) -> None:
    exact = sorted(found)[max(1, -(-q * len(found) // 1).__int__()) - 1]
    assert schema.quantile(schema.histogram(found), q) == pytest.approx(exact, rel=0.023)


@given(st.lists(st.lists(whole, max_size=30), max_size=5))
def test_histograms_of_parts_add_up_to_that_of_the_whole(parts: list[list[int]]) -> None:
    everything = [value for part in parts for value in part]
    assert schema.merge(map(schema.histogram, parts)) == schema.histogram(everything)


def test_the_quantile_of_nothing_is_0_and_of_nonsense_an_error() -> None:
    assert schema.quantile({}, 0.5) == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        schema.quantile({1: 1}, 1.5)


def test_a_file_lies_in_the_hour_of_its_rows_in_utc() -> None:
    moment = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert schema.partition(moment) == "date=2026-02-28/hour=22"
    assert schema.partition_of_us(int(moment.timestamp() * 1e6)) == schema.partition(moment)
    start = schema.partition_start(f"publish/{schema.partition(moment)}/x.parquet")
    assert start == datetime(2026, 2, 28, 22, tzinfo=UTC)
    with pytest.raises(ValueError, match="zone"):
        schema.partition(datetime(2026, 3, 1))  # noqa: DTZ001


@pytest.mark.parametrize("path", ["x", "date=2026-02-31/hour=01", "date=2026-02-01/hour=25", "date=/hour="])
def test_a_path_without_an_hour_has_none(path: str) -> None:
    assert schema.partition_start(path) is None


@pytest.mark.parametrize("node", ["", "_hidden", ".dot", "a/../b", "é ü", "node-1"])
def test_a_file_name_is_one_part_and_never_hidden(node: str) -> None:
    name = schema.file_name(node, "run", 7)
    assert "/" not in name
    assert not name.startswith(("_", "."))
    assert name.endswith("-000007.parquet")
