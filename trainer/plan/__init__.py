"""From ready groups to a committed plan, and from a plan to the facts that it names."""
