"""The pipeline for plain `spark-submit`, which brings its own session and arguments. See docs/pipeline.md.

`spark-submit --py-files tidegate.zip tidegate_pipeline.py --lake DIR [--out DIR] [--policy DIR] [--job NAME]`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    from pyspark.sql import SparkSession

    from tidegate.errors import TidegateError
    from tidegate.pipeline.run import JOBS, run
    from tidegate.pipeline.session import CONFIG
    from tidegate.pipeline.settings import PipelineSettings

    parser = argparse.ArgumentParser(
        description="From a lake to a policy snapshot, whose version is printed."
    )
    parser.add_argument("--lake", required=True)
    parser.add_argument("--out", default="")
    parser.add_argument("--policy", default="")
    parser.add_argument("--job", action="append", choices=list(JOBS), default=[])
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args(arguments)
    builder = SparkSession.builder.appName("tidegate")
    for key, value in CONFIG.items():
        if key.startswith("spark.sql."):  # the rest is the submitter's to say
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    settings = PipelineSettings(lake=given.lake, out=given.out, policy=given.policy, is_full=given.full)
    try:
        done = run(spark, settings, given.job)
    except TidegateError as error:
        print("error:", error, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(done.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
