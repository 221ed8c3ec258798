#!/usr/bin/env bash
# Format, lint, strict types and import contracts; format of the pages' JavaScript and CSS, lint and types of the JavaScript; needs the environment that claw/bootstrap.py makes. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
export DENO_DIR=.deno_cache  # our pages; nothing is fetched
.venv/bin/deno fmt --check --quiet
.venv/bin/deno lint --quiet
.venv/bin/deno check --quiet consumers/*/static/*.js

.venv/bin/python -m tests.architecture.ceilings  # prints; that none is passed is a test
