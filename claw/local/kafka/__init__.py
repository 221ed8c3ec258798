"""Apache Kafka on this machine, without a container: one node, or a cluster of them, and Kafka's own tools."""
