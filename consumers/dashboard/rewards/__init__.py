"""Scorers as the page shows them: each version's rewards, disagreements, costs, and reasons."""
