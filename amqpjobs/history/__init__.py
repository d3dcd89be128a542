"""What the lake knows, read without Spark and without a JVM (`pip install amqpjobs[history]`; docs/pipeline.md)."""
