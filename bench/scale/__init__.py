"""More processes and hosts: `python -m bench.scale`."""
