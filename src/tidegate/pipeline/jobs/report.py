"""The page and the summary of what the other jobs found."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.pipeline import io
from tidegate.pipeline.report.gather import gather
from tidegate.pipeline.report.page import write
from tidegate.pipeline.settings import PipelineSettings, local_folder


def main(spark: SparkSession, settings: PipelineSettings, folder: Path | None = None) -> list[Path]:
    """Written to `folder`, by default where the pipeline writes; the files."""
    io.use_utc(spark)
    target = folder or Path(local_folder(settings.out_folder, "--to")) / "report"
    return write(gather(spark, settings, datetime.now(UTC)), target)
