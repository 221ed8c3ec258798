"""Facts as data: export and datasets, lineage, replay, dead letters, rebuild and verify."""
