"""The API of Anthropic, as its clients use it."""
