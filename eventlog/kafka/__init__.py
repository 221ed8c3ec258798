"""The log on Kafka: the one place that knows the client library."""
