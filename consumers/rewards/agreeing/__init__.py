"""How far raters agree: what stands of whom, and the figures of it."""
