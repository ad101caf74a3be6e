"""Latency of calls, hop by hop."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate.pipeline import io, tables
from tidegate.pipeline.settings import PipelineSettings
from tidegate.pipeline.transforms import rpc


def main(spark: SparkSession, settings: PipelineSettings) -> None:
    hops = io.read_aggregate(spark, settings, "rpc_hops")
    io.write_finding(rpc.latency(hops), settings, tables.RPC_LATENCY)
