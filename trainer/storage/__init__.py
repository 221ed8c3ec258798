"""The files of a run on disk: checkpoints to resume from and exports that others read. Whole or not there."""
