"""PySpark jobs from the lake to the policy. The only room, with `spark/`, that imports pyspark."""
