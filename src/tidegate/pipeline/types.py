"""`schema.py` in Spark's types, and data frames brought into the shape that a table promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidegate.schema import Column, Table, Type

TYPES: Final[Mapping[Type, T.DataType]] = {
    Type.STRING: T.StringType(),
    Type.BOOL: T.BooleanType(),
    Type.INT16: T.ShortType(),
    Type.INT32: T.IntegerType(),
    Type.INT64: T.LongType(),
    Type.FLOAT64: T.DoubleType(),
    Type.TIMESTAMP: T.TimestampType(),
    Type.LIST_INT16: T.ArrayType(T.ShortType()),
    Type.LIST_INT64: T.ArrayType(T.LongType()),
    Type.LIST_FLOAT64: T.ArrayType(T.DoubleType()),
}
HOUR_PARTITION: Final = (T.StructField("date", T.DateType()), T.StructField("hour", T.IntegerType()))
PART_PARTITION: Final = (T.StructField("date", T.DateType()), T.StructField("part", T.IntegerType()))


def spark_type(column: Column) -> T.DataType:
    return TYPES[column.type]


def spark_schema(table: Table, partition: Iterable[T.StructField] = ()) -> T.StructType:
    """All fields may be null: older files lack some, and Spark would not check the rest."""
    fields = [T.StructField(column.name, spark_type(column)) for column in table.columns]
    return T.StructType([*fields, *partition])


def conform(frame: DataFrame, table: Table, partition: Iterable[str] = ()) -> DataFrame:
    """Exactly the columns of the table, in their order and types, and the partition's after them."""
    wanted = [F.col(f"`{c.name}`").cast(spark_type(c)).alias(c.name) for c in table.columns]
    return frame.select(*wanted, *partition)
