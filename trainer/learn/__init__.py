"""Rows into a better policy: micro-batches, losses, the DeepSpeed engine, the model and its checkpoints."""
