"""OpenAI's chat completions as requests, replies and streams: the first dialect that the gateway can capture."""
