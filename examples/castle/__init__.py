"""A text game of 20 to 32 turns: rooms in a row, keys and locked doors."""
