"""Parts of a run's settings, one file each. Readable without torch."""
