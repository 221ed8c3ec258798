"""The generative judge behind `kinds/judge.py`: its prompts, and how its answers become numbers."""
