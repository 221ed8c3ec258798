"""vLLM as a child process: what must hold before it is started, how it is started, and its end."""
