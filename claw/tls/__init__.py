"""The certificates of a secured stack on one machine."""
