"""OpenAI's chat completions as requests, replies and streams: the first protocol that the gateway captures."""
