"""Versions of the weights after training: published, evaluated, and awaited by live workers."""
