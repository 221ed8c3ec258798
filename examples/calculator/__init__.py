"""Word problems of one or two steps, with a calculator as the agent's tool."""
