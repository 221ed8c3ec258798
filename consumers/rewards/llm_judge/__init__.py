"""The generative judge behind `kinds/judge.py`: what it is told, shown and asked, and how its answers become numbers."""
