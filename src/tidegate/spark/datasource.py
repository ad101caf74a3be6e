"""What Spark asks first: the name, the schema, and who reads or writes."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tidegate.spark.decode import ROW_SCHEMA, Decoder
from tidegate.spark.errors import OptionError
from tidegate.spark.options import MqttOptions, read_options
from tidegate.spark.sink import MqttStreamWriter, MqttWriter
from tidegate.spark.source import MqttBatchReader, MqttStreamReader


class MqttDataSource(DataSource):
    """`format("mqtt")`; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        return "mqtt"

    def schema(self) -> StructType:
        options = read_options(self.options, "source")
        if options.payload != "raw":
            raise OptionError(
                f"payload is {options.payload}, and nothing says what columns it has",
                hint='add .schema("temperature DOUBLE, …"); topic, received and the like may be among them',
            )
        return from_arrow_schema(ROW_SCHEMA)

    def reader(self, schema: StructType) -> MqttBatchReader:
        options = read_options(self.options, "source")
        return MqttBatchReader(options, _decoder(options, schema))

    def streamReader(self, schema: StructType) -> MqttStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self.options, "source")
        return MqttStreamReader(options, dict(self.options), _decoder(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> MqttWriter:
        if overwrite:
            raise OptionError("what was published cannot be overwritten", hint='use .mode("append")')
        return MqttWriter(read_options(self.options, "sink"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MqttStreamWriter:  # noqa: N802
        if overwrite:
            raise OptionError("what was published cannot be overwritten", hint='use outputMode("append")')
        return MqttStreamWriter(read_options(self.options, "sink"), schema)


def _decoder(options: MqttOptions, schema: StructType) -> Decoder:
    arrow: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return Decoder(arrow, options.payload, options.mode)
