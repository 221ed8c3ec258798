"""The costs of agents: `python -m bench.agents`."""
