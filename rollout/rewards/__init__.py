"""A reward model behind HTTP: vLLM's pooling runner, for `claw rewards serve`. No log, no weights that change."""
