"""Agents: a flow in Python or any command, played in groups through the gateway. Imports no torch and no
Kafka, only HTTP."""
