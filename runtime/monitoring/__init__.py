"""Metrics and probes of a process: what every process counts (`registry`), and the port where
it is read (`server`)."""
