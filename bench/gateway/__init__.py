"""The costs of the gateway: `python -m bench.gateway`."""
