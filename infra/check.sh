#!/usr/bin/env bash
# Format, lint, strict types and import contracts; needs the environment that claw/bootstrap.py makes. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports

echo "Lines of Python per room (schemas/events.py, which is generated, left out):"
git ls-files -z -- '*.py' ':!schemas/events.py' | xargs -0 wc -l | awk '
  $2 == "total" { next }
  { split($2, path, "/"); room = path[1]; lines[room] += $1 }
  room !~ /^(tests|bench|examples|docs)$/ { source += $1 }
  END {
    for (room in lines) printf "%7d %s\n", lines[room], room | "sort -rn"
    close("sort -rn")
    printf "%7d in all rooms, without tests, bench and examples\n", source
  }'
