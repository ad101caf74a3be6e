"""What one snapshot says and another does not."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.schema import POLICY_TABLES


def compare(
    old: pa.Table, new: pa.Table, table: str, value: str, factor: float
) -> dict[str, list[tuple[str, ...]]]:
    """Rows by key that are `new`, `gone` or `changed` (the value by more than `factor`, the largest change first)."""
    key = list(POLICY_TABLES[table].key)
    columns = [*key, value]
    joined = old.select(columns).join(
        new.select(columns), keys=key, join_type="full outer", right_suffix="_new", coalesce_keys=True
    )
    before, after = joined[value], joined[f"{value}_new"]
    came = joined.filter(pc.is_null(before))
    went = joined.filter(pc.is_null(after))
    ratio = pc.divide(
        pc.max_element_wise(before, after), pc.max_element_wise(pc.min_element_wise(before, after), 1e-12)
    )
    is_changed = pc.and_(pc.and_(pc.is_valid(before), pc.is_valid(after)), pc.greater(ratio, factor))
    changed = joined.append_column("_ratio", ratio).filter(is_changed).sort_by([("_ratio", "descending")])
    order = [(name, "ascending") for name in key]
    return {
        "new": [(*_key(row, key), _shown(row[f"{value}_new"])) for row in came.sort_by(order).to_pylist()],
        "gone": [(*_key(row, key), _shown(row[value])) for row in went.sort_by(order).to_pylist()],
        "changed": [
            (*_key(row, key), _shown(row[value]), _shown(row[f"{value}_new"])) for row in changed.to_pylist()
        ],
    }


def _shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.6g}"


def _key(row: dict[str, object], key: list[str]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in key)
