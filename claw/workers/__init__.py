"""Rollout workers as a person sees them: where they are started, what they report, how they
are drained and probed."""
