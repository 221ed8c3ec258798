"""What clients of Anthropic's API send and read."""
