"""Jobs: each is a module with `main(spark, settings)`, which reads tables, writes tables, and can be repeated."""
