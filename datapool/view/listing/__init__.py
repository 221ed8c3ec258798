"""Lists of the pool for people: pages sorted by any column, counts, and counts per value, of a view made with
`listed=True`."""
