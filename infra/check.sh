#!/usr/bin/env bash
# Format, lint, strict types and import contracts; needs the environment that claw/bootstrap.py makes. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
