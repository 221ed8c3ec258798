"""Installs locked packages: a checkout's `.venv` (`bootstrap.py`), or what an installed wheel
lacks (`claw setup`)."""
