"""Scorers as the page shows them: what each version said, where they disagree, what it cost, and why."""
