"""Environments of Gymnasium's shape, played by a model through text."""
