"""The code that runs inside vLLM's processes, on its official extension points only."""
