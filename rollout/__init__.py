"""The rollout worker: a supervisor around one vLLM server, and the plugins that run inside vLLM."""
