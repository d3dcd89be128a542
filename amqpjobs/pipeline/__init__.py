"""The pipeline: the streams' entries into Delta tables, exactly once, and sums over them (docs/pipeline.md).

Spark is an extra (`pip install amqpjobs[pipeline]`). Nothing outside this package imports it.
"""
