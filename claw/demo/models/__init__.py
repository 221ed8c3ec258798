"""The models of the demo and of the examples, made in code."""
