"""The demo's task: answer each observation with the right tool, two or three model calls per episode."""
